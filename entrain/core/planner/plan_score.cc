#include "entrain/core/planner/plan_score.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/step/step.h"

namespace entrain {
namespace {

// Peaks of all lanes, and the first lane over its limit.
void check_memory(const Plan& plan, const Timeline& timeline, StepScore& score) {
  score.lane_peak_bytes.assign(static_cast<std::size_t>(plan.num_lanes()), 0);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int lane = 0; lane < plan.num_lanes(); ++lane) {
      const auto number = static_cast<std::size_t>(lane);
      const std::int64_t peak =
          timeline.lanes[static_cast<std::size_t>(replica)][number].peak_bytes;
      std::int64_t& most = score.lane_peak_bytes[number];
      most = std::max(most, peak);
      const std::int64_t limit = plan.limits.bytes_of(lane);
      if (limit > 0 && peak > limit && score.fits()) {
        score.reason = fmt::format("replica {}, lane {} needs {} of activations, allowed: {}",
                                   replica,
                                   lane,
                                   format_bytes(peak),
                                   format_bytes(limit));
      }
    }
  }
}

}  // namespace

StepScore score_step(const Plan& plan,
                     const StepCosts& costs,
                     std::int64_t step,
                     std::uint64_t seed) {
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.step = step;
  request.seed = seed;
  StepScore score;
  try {
    const Timeline timeline =
        simulate_step(plan.policy, request, {.proof = StepProof::kNone}).timeline;
    check_memory(plan, timeline, score);
    score.ns = timeline.makespan.count();
  } catch (const NothingFits& error) {
    score.reason = error.what();
  }
  return score;
}

}  // namespace entrain
