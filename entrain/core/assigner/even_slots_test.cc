#include "entrain/core/assigner/even_slots.h"

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

std::int64_t simulated(const oracle::RandomCase& of, const Placement& placement) {
  const BuiltStep built =
      build_step(of.plan, to_assignment(of.costs, placement), of.costs, of.plan.schedule);
  return simulate(built.program, built.graph, of.costs).makespan.count();
}

TEST(FasterEvenSlots, AreFasterThanTheBestAndNoSlowerThanThoseOfThePlan) {
  int found = 0;
  int none = 0;
  for (int i = 0; i < 60; ++i) {
    Rng rng(71, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.replicas = 2;
    options.max_samples = 24;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.schedule = "1f1b";
    of.costs.reduce_buckets = 4;
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
    const BatchLoads loads = batch_loads(of.plan, of.costs);
    StepEvaluator evaluator(of.plan, of.costs);
    const Placement even = lpt_2d_bins(request, loads, of.plan.num_slots);
    const Placement best = i % 2 == 0 ? sequential_policy(request) : even;
    const std::optional<Placement> faster = faster_even_slots(request, loads, evaluator, best);
    if (!faster) {
      ++none;
      EXPECT_LE(simulated(of, best), simulated(of, even)) << "case " << i;
      continue;
    }
    ++found;
    validate_assignment(to_assignment(of.costs, *faster), of.plan, of.costs);
    EXPECT_LT(simulated(of, *faster), simulated(of, best)) << "case " << i;
    EXPECT_LE(simulated(of, *faster), simulated(of, even)) << "case " << i;
  }
  EXPECT_GT(found, 20);
  EXPECT_GT(none, 2);
}

}  // namespace
}  // namespace entrain
