#include "entrain/core/study/one_sample.h"

#include <algorithm>
#include <span>

#include "entrain/core/base/errors.h"
#include "entrain/core/planner/single_sample_plan.h"

namespace entrain {
namespace {

std::vector<CountedPlan> plans_of(const CasesRequest& request, int draws) {
  const Study& study = *request.study;
  if (!study.inputs.costs.empty()) {
    throw InvalidInput("plans of single samples need a model and a profile, not given costs");
  }
  const StudyBatch batch = draw_batch(study, 0);
  if (draws < 1 || draws > std::ssize(batch.work)) {
    throw InvalidInput(
        "plans of single samples: from 1 to as many draws as the global batch has samples");
  }
  SingleSampleRequest single;
  single.model = &study.model;
  single.profile = &study.profile;
  single.lanes = request.plan.num_lanes();
  single.replicas = request.plan.replicas;
  single.num_slots = request.plan.num_slots;
  single.tensor_parallel = request.plan.modules.front().tensor_parallel;
  single.context_parallel = request.plan.modules.front().context_parallel;
  single.limits = request.plan.limits;
  return single_sample_plans(
      single, std::span<const SampleWork>(batch.work).first(static_cast<std::size_t>(draws)));
}

}  // namespace

std::vector<CaseResult> run_one_sample_cases(const CasesRequest& request, int draws) {
  ENTRAIN_INVARIANT(request.study != nullptr, "cases need a study");
  const std::vector<CountedPlan> plans = plans_of(request, draws);
  const auto most =
      std::max_element(plans.begin(), plans.end(), [](const CountedPlan& a, const CountedPlan& b) {
        return a.count < b.count;
      });
  std::vector<std::vector<CaseResult>> results;  // [plan]
  for (const CountedPlan& counted : plans) {
    CasesRequest under = request;
    under.plan = counted.plan;
    if (recomputes(request.plan)) {
      recompute_all(under.plan);
    }
    results.push_back(run_cases(under));
  }
  std::vector<CaseResult> mean = results[static_cast<std::size_t>(most - plans.begin())];
  for (std::size_t i = 0; i < mean.size(); ++i) {
    mean[i].policy += " (own plans)";
    for (std::size_t step = 0; step < mean[i].steps.size(); ++step) {
      double step_ns = 0;
      double bound_ns = 0;
      for (std::size_t plan = 0; plan < plans.size(); ++plan) {
        const CaseStep& of = results[plan][i].steps[step];
        step_ns += static_cast<double>(of.step_ns) * plans[plan].count / draws;
        bound_ns += static_cast<double>(of.bound_ns) * plans[plan].count / draws;
      }
      mean[i].steps[step].step_ns = static_cast<std::int64_t>(step_ns);
      mean[i].steps[step].bound_ns = static_cast<std::int64_t>(bound_ns);
      mean[i].steps[step].causes.reset();
    }
  }
  return mean;
}

}  // namespace entrain
