#include "entrain/core/assigner/search.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/assigner/lower_bound.h"

#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

void evaluate_all(StepEvaluator& evaluator, Evaluated& evaluated) {
  evaluated.times.clear();
  for (int r = 0; r < static_cast<int>(evaluated.placement.samples.size()); ++r) {
    evaluated.times.push_back(evaluator.evaluate(evaluated.placement, r));
  }
}

TEST(LocalSearch, NeverGetsSlowerAndKeepsItsBudgetAndMemory) {
  constexpr std::uint64_t kSeed = 41;
  int faster = 0;
  for (int i = 0; i < 300; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCase random_case = oracle::make_random_case(rng);
    Plan& plan = random_case.plan;
    const StepCosts& costs = random_case.costs;
    plan.limits.evaluations = 60;
    plan.limits.bytes_per_lane = i % 2 == 0 ? 0 : 1'000'000;
    const BatchLoads loads = batch_loads(plan, costs);
    Evaluated start{deal_in_order(costs, loads.descending, plan.replicas, 4), {}};
    StepEvaluator probe(plan, costs);
    evaluate_all(probe, start);
    if (i % 2 != 0) {
      // No more than what the start needs.
      plan.limits.bytes_per_lane = 1;
      for (const ReplicaTimes& times : start.times) {
        plan.limits.bytes_per_lane = std::max(plan.limits.bytes_per_lane, times.peak_bytes);
      }
    }
    StepEvaluator evaluator(plan, costs);
    evaluate_all(evaluator, start);
    const AssignRequest request{.plan = &plan, .costs = &costs};
    const std::int64_t bound = step_lower_bound(plan, costs, plan.schedule).count();
    const int evaluated = evaluator.simulations();
    // All replicas, or all but the last.
    SearchPiece piece{.budget = 60, .members = oracle::replicas_of(plan), .kicks = i % 3};
    const bool not_all = plan.replicas > 1 && i % 5 == 0;
    if (not_all) {
      piece.members.pop_back();
    }
    SearchedPlacement searched(start);
    local_search(request, loads, bound, evaluator, piece, searched);
    Evaluated& result = searched.best;
    if (not_all) {
      const int last = plan.replicas - 1;
      ASSERT_EQ(to_assignment(costs, result.placement, last),
                to_assignment(costs, start.placement, last));
    }
    ASSERT_LE(evaluator.simulations() - evaluated, 60);
    const std::int64_t before = evaluator.step_ns(start.times);
    const std::int64_t after = evaluator.step_ns(result.times);
    ASSERT_LE(after, before) << "seed " << kSeed << ", case " << i;
    evaluate_all(evaluator, result);
    ASSERT_EQ(evaluator.step_ns(result.times), after) << "seed " << kSeed << ", case " << i;
    for (const ReplicaTimes& times : result.times) {
      ASSERT_TRUE(times.fits()) << "seed " << kSeed << ", case " << i;
    }
    faster += after < before ? 1 : 0;
  }
  EXPECT_GT(faster, 100);
}

TEST(LocalSearch, StopsAtTheBound) {
  Rng rng(3);
  oracle::RandomCase random_case = oracle::make_random_case(rng);
  const BatchLoads loads = batch_loads(random_case.plan, random_case.costs);
  Evaluated start{deal_in_order(random_case.costs, loads.descending, random_case.plan.replicas, 4),
                  {}};
  StepEvaluator evaluator(random_case.plan, random_case.costs);
  for (int r = 0; r < random_case.plan.replicas; ++r) {
    start.times.push_back(evaluator.evaluate(start.placement, r));
  }
  const int spent = evaluator.evaluations();
  const AssignRequest request{.plan = &random_case.plan, .costs = &random_case.costs};
  const SearchPiece piece{.budget = 400, .members = oracle::replicas_of(random_case.plan)};
  SearchedPlacement searched(start);
  local_search(request, loads, evaluator.step_ns(start.times), evaluator, piece, searched);
  EXPECT_EQ(evaluator.evaluations(), spent);
}

}  // namespace
}  // namespace entrain
