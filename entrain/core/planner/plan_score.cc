#include "entrain/core/planner/plan_score.h"

#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/step/step.h"

namespace entrain {
namespace {

// Of the first lane over its limit.
std::string limit_reason(const Plan& plan, const Timeline& timeline) {
  for (std::size_t replica = 0; replica < timeline.lanes.size(); ++replica) {
    for (int lane = 0; lane < plan.num_lanes(); ++lane) {
      const std::int64_t peak = timeline.lanes[replica][static_cast<std::size_t>(lane)].peak_bytes;
      const std::int64_t limit = plan.limits.bytes_of(lane);
      if (limit > 0 && peak > limit) {
        return fmt::format("replica {}, lane {} needs {} of activations, allowed: {}",
                           replica,
                           lane,
                           format_bytes(peak),
                           format_bytes(limit));
      }
    }
  }
  return "";
}

}  // namespace

StepScore score_step(const Plan& plan,
                     const StepCosts& costs,
                     std::int64_t step,
                     std::uint64_t seed,
                     const ScoreOptions& options) {
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.step = step;
  request.seed = seed;
  request.threads = options.threads;
  request.give_up_ns = options.give_up_ns;
  StepScore score;
  try {
    SimulatedStep simulated = simulate_step(plan.policy, request, {.prove = false});
    score = {simulated.timeline.makespan.count(),
             std::move(simulated.peak_bytes),
             limit_reason(plan, simulated.timeline)};
  } catch (const NothingFits& error) {
    score.reason = error.what();
  } catch (const GaveUp& error) {
    score.ns = error.expected_ns();
    score.gave_up = true;
  }
  return score;
}

}  // namespace entrain
