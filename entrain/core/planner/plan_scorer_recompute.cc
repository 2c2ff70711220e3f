// How many layers the plans of a configuration recompute.
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

// Of a batch that is one sample.
std::int64_t backward_ns(const StepCosts& costs, const StageRef& ref) {
  return costs.modules[static_cast<std::size_t>(ref.module)]
      .stages[static_cast<std::size_t>(ref.stage)]
      .units.front()
      .time.backward()
      .count();
}

}  // namespace

bool PlanScorer::may_recompute() const {
  return request_.recompute == RecomputeRule::kAuto &&
         (request_.cluster->memory_bytes > 0 || request_.limits.bytes_per_lane > 0);
}

std::optional<PlanCandidate> PlanScorer::score_rest(const PlanCandidate& stopped) {
  for (std::size_t batch = stopped.steps.size(); batch < request_.batches.size(); ++batch) {
    if (!step(stopped.plan, batch).fits()) {
      return recompute(stopped.config, true, {});
    }
  }
  return std::nullopt;
}

// With layers cut as memory allows where all are recomputed. Unless `needed`, no level is tried
// where the estimate says that the first one fits.
PlanCandidate PlanScorer::recompute(const PlanShape& config,
                                    bool needed,
                                    std::span<const std::int64_t> rival) {
  PlanCandidate result = lay_out(config, bounds_.cut(config, true));
  if (result.state == CandidateState::kNoFit) {
    return result;
  }
  const RecomputeLevels all = levels_of(result.plan);
  if (!needed && all.guess == 0) {
    result.state = CandidateState::kNoFit;
    return result;
  }
  result = best_level(result, all, rival);
  result.recompute_tried = true;
  if (result.state == CandidateState::kNoFit) {
    result.reason = "with every layer recomputed, " + result.reason;
  } else {
    count_recompute(result);
  }
  return result;
}

RecomputeLevels PlanScorer::levels_of(const Plan& plan) const {
  return recompute_levels(*request_.model,
                          plan,
                          cluster_profile(*request_.profile, *request_.cluster, plan.replicas),
                          request_.batches.front());
}

// The guess where it fits; else the fastest that fits of the last level and two between, by halving
// the levels between the last that does not fit and the first that does.
PlanCandidate PlanScorer::best_level(const PlanCandidate& without,
                                     const RecomputeLevels& all,
                                     std::span<const std::int64_t> rival) {
  const auto try_level = [&](int level) {
    PlanCandidate candidate = without;
    set_recompute(all.levels[static_cast<std::size_t>(level)], candidate.plan);
    simulate(candidate, std::numeric_limits<std::int64_t>::max(), rival);
    return candidate;
  };
  PlanCandidate best = try_level(all.guess);
  int too_few = all.guess;
  int fits = static_cast<int>(all.levels.size()) - 1;
  if (best.state != CandidateState::kNoFit || too_few == fits) {
    return best;
  }
  best = try_level(fits);
  constexpr int kHalvings = 2;
  for (int i = 0; i < kHalvings && best.state != CandidateState::kNoFit; ++i) {
    const int middle = (too_few + fits) / 2;
    if (middle == too_few) {
      break;
    }
    PlanCandidate candidate = try_level(middle);
    if (candidate.state == CandidateState::kNoFit) {
      too_few = middle;
      continue;
    }
    fits = middle;
    if (candidate.state != best.state) {
      return best_level(without, all, {});  // one of them is worth its simulation
    }
    const bool in_full = candidate.state == CandidateState::kSimulated;
    if (in_full ? total_ns(candidate) < total_ns(best)
                : time_over(candidate, rival) < time_over(best, rival)) {
      best = std::move(candidate);
    }
  }
  return best;
}

// What the recomputed forwards take, as a difference to the same plan without.
void PlanScorer::count_recompute(PlanCandidate& candidate) const {
  if (!recomputes(candidate.plan)) {
    return;
  }
  Plan without = candidate.plan;
  set_recompute({}, without);
  candidate.lane_recompute_ns.assign(candidate.plan.lanes.size(), 0);
  const Profile profile =
      cluster_profile(*request_.profile, *request_.cluster, candidate.plan.replicas);
  const StepCosts with_costs = step_costs(*request_.model, candidate.plan, profile, sum_);
  const StepCosts costs = step_costs(*request_.model, without, profile, sum_);
  for (std::size_t lane = 0; lane < candidate.plan.lanes.size(); ++lane) {
    for (const StageRef& ref : candidate.plan.lanes[lane]) {
      candidate.lane_recompute_ns[lane] += backward_ns(with_costs, ref) - backward_ns(costs, ref);
    }
  }
  for (std::size_t lane = 0; lane < candidate.plan.lanes.size(); ++lane) {
    candidate.lane_recompute_ns[lane] /= num_batches() * candidate.plan.replicas;
    candidate.lane_work_ns[lane] += candidate.lane_recompute_ns[lane];
  }
}

}  // namespace entrain
