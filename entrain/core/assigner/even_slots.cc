#include "entrain/core/assigner/even_slots.h"

#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "entrain/core/baselines/policies.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

// Numbers of slots.
std::set<int> fastest_counts(const AssignRequest& request,
                             const BatchLoads& loads,
                             StepEvaluator& evaluator) {
  constexpr std::size_t kMost = 2;
  std::set<std::pair<std::int64_t, int>> fastest;
  for (const int count : {1, 2, 4, 8, 12, 16, 24, 32}) {
    if (count * request.plan->replicas > request.costs->num_samples) {
      break;
    }
    const Placement even = lpt_2d_bins(request, loads, count);
    std::vector<ReplicaTimes> times;
    bool fits = true;
    for (int replica = 0; replica < request.plan->replicas; ++replica) {
      times.push_back(evaluator.evaluate(even, replica));
      fits = fits && times.back().fits();
    }
    if (fits) {
      fastest.emplace(evaluator.step_ns(times), count);
    }
  }
  std::set<int> counts;
  for (const auto& [step_ns, count] : fastest) {
    if (counts.size() < kMost) {
      counts.insert(count);
    }
  }
  return counts;
}

// The most there is where it does not fit.
std::int64_t simulated_ns(const AssignRequest& request, const Placement& placement) {
  const Plan& plan = *request.plan;
  const Program program =
      build_program(plan, to_assignment(*request.costs, placement), *request.costs, plan.schedule);
  if (worst_excess(program, *request.costs, plan.limits)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return simulate(program, *request.costs).makespan.count();
}

}  // namespace

std::optional<Placement> faster_even_slots(const AssignRequest& request,
                                           const BatchLoads& loads,
                                           StepEvaluator& evaluator,
                                           const Placement& best) {
  const int given = request.plan->num_slots;
  std::set<int> counts = fastest_counts(request, loads, evaluator);
  counts.insert(given);
  std::int64_t best_ns = simulated_ns(request, best);
  std::optional<Placement> faster;
  const auto judge = [&](Placement placement) {
    const std::int64_t ns = simulated_ns(request, placement);
    const bool wins = ns < best_ns;
    if (wins) {
      best_ns = ns;
      faster = std::move(placement);
    }
    return wins;
  };
  int best_count = given;
  for (const int count : counts) {
    best_count = judge(lpt_2d_bins(request, loads, count)) ? count : best_count;
  }
  for (const int count : std::set<int>{best_count, given}) {
    judge(dflop_bins(request, loads, count, kDflopExchanges));
  }
  return faster;
}

}  // namespace entrain
