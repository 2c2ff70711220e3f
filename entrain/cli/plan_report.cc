#include "entrain/cli/plan_report.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/report/plan_page.h"
#include "entrain/core/report/report_views.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/step/step.h"

#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

constexpr std::size_t kMostRunnersUp = 10;

// Description, step time over the plan's, how far it was simulated.
using RunnersUp = std::vector<std::tuple<std::string, double, std::string>>;

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
    const auto& [what, ratio, how] = runners_up[i];
    view["plan"]["runners_up"].push_back({{"what", what}, {"ratio", ratio}, {"how", how}});
  }
  return view;
}

Json report_of(Json view, const PlanStudy& input) {
  view["facts"].push_back({"planned for", input.study.note()});
  return report_of_views(Json::array({std::move(view)}), "plan");
}

}  // namespace

Json plan_report(const PlanStudy& input, const PlanSearchResult& result) {
  const PlanCandidate& best = result.best();
  RunnersUp runners_up;
  for (const RunnerUp& other : ranked(result)) {
    runners_up.emplace_back(
        describe(*other.plan, input.study.model), other.ratio, how_far(other, result));
  }
  Json view = view_of_found(input, best.plan, runners_up);
  view["plan"]["certificate"].push_back("Of the plans searched, it is " + proof_of(result) + ".");
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
      runners_up.emplace_back(
          describe(split.shape, input.study.model),
          static_cast<double>(split.mean_ns) /
              static_cast<double>(std::max<std::int64_t>(1, result.splits.front().mean_ns)),
          concat("on all ", counted(std::ssize(split.steps), "batch")));
    }
  }
  return report_of(view_of_found(input, result.best(), runners_up), input);
}

}  // namespace entrain::cli
