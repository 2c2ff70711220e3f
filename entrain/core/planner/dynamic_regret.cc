#include "entrain/core/planner/dynamic_regret.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/planner/plan_search.h"

namespace entrain {
namespace {

double ratio_less_one(std::int64_t a, std::int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) - 1 : 0;
}

}  // namespace

double DynamicRegret::regret() const {
  return ratio_less_one(static_ns, dynamic_ns);
}

double DynamicRegret::most() const {
  return ratio_less_one(static_ns, bound_ns);
}

DynamicRegret dynamic_regret(const PlanSearchRequest& request,
                             const Plan& static_plan,
                             const std::function<void(int)>& done) {
  Plan plan = static_plan;
  plan.limits.evaluations = request.score_evaluations;
  const Profile profile = cluster_profile(*request.profile, *request.cluster, plan.replicas);
  DynamicRegret result;
  for (std::size_t batch = 0; batch < request.batches.size(); ++batch) {
    if (done) {
      done(result.batches);
    }
    PlanSearchRequest one = request;
    one.batches = {request.batches[batch]};
    one.further = {};
    one.first_step = request.first_step + static_cast<std::int64_t>(batch);
    one.runners_up = 0;
    one.progress = nullptr;
    const PlanSearchResult found = search_plans(one);
    const StepScore score =
        score_step(plan,
                   step_costs(*request.model, plan, profile, request.batches[batch]),
                   one.first_step,
                   request.seed);
    if (!score.fits()) {
      throw NothingFits(
          fmt::format("step {}: the static plan does not fit: {}", one.first_step, score.reason));
    }
    ++result.batches;
    result.static_ns += score.ns;
    result.dynamic_ns += found.fits() ? std::min(score.ns, found.best().mean_ns) : score.ns;
    result.bound_ns += found.lower_bound_ns;
    result.complete = result.complete && found.complete;
  }
  for (std::int64_t* sum : {&result.static_ns, &result.dynamic_ns, &result.bound_ns}) {
    *sum /= std::max(1, result.batches);
  }
  return result;
}

}  // namespace entrain
