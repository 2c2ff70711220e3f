#include "entrain/cli/plan_report.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/report/plan_page.h"
#include "entrain/core/report/report_views.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/step/step.h"

#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

constexpr std::size_t kMostRunnersUp = 10;

using RunnersUp = std::vector<std::pair<std::string, double>>;  // with their ratio to the plan

Json view_of_found(const PlanStudy& input, const Plan& plan, const RunnersUp& runners_up) {
  const Study& study = input.study;
  const StudyStep step = make_step(study, plan, {}, 0);
  constexpr StepOptions kAsked{.prove_limits = false, .events = true, .bound = true};
  const SimulatedStep simulated =
      simulate_step(plan.policy, assign_request(step, study, 0), kAsked);
  StepViewRequest drawn;
  drawn.plan = &step.plan;
  drawn.costs = &step.costs;
  drawn.program = &simulated.program;
  drawn.predicted = &simulated.timeline;
  drawn.sample_ids = &step.batch.ids;
  drawn.bound = simulated.bound;
  Json view = view_of_step(step_view(drawn), "plan");
  view["facts"].push_back({"policy", plan.policy});
  view["plan"] = view_of_plan(to_json(plan));
  for (std::size_t i = 0; i < std::min(runners_up.size(), kMostRunnersUp); ++i) {
    view["plan"]["runners_up"].push_back(
        {{"what", runners_up[i].first}, {"ratio", runners_up[i].second}});
  }
  return view;
}

double ratio(std::int64_t time_ns, std::int64_t best_ns) {
  return best_ns > 0 ? static_cast<double>(time_ns) / static_cast<double>(best_ns) : 1;
}

Json report_of(Json view, const PlanStudy& input) {
  view["facts"].push_back({"planned for", input.study.note()});
  return report_of_views(Json::array({std::move(view)}), "plan");
}

}  // namespace

Json plan_report(const PlanStudy& input, const PlanSearchResult& result) {
  const PlanCandidate& best = result.best();
  RunnersUp runners_up;
  for (std::size_t i = 1; i < result.plans.size(); ++i) {
    runners_up.emplace_back(describe(result.plans[i], input.study.model),
                            ratio(result.plans[i].mean_ns, best.mean_ns));
  }
  Json view = view_of_found(input, best.plan, runners_up);
  for (std::size_t lane = 0; lane < best.lane_peak_bytes.size(); ++lane) {
    view["plan"]["lanes"][lane]["peak_bytes"] = best.lane_peak_bytes[lane];
    view["plan"]["lanes"][lane]["state_bytes"] = best.lane_state_bytes[lane];
  }
  return report_of(std::move(view), input);
}

Json plan_report(const PlanStudy& input, const LaneSplitResult& result) {
  RunnersUp runners_up;
  for (std::size_t i = 1; i < result.splits.size(); ++i) {
    const LaneSplit& split = result.splits[i];
    if (split.reason.empty()) {
      runners_up.emplace_back(describe(split.shape, input.study.model),
                              ratio(split.mean_ns, result.splits.front().mean_ns));
    }
  }
  return report_of(view_of_found(input, result.best(), runners_up), input);
}

}  // namespace entrain::cli
