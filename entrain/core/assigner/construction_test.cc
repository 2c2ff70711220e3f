#include "entrain/core/assigner/construction.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/slot_bytes.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Under limits that bind, whatever was tried and taken back: times are those of the placement, each
// sample is in one replica, and a second step is made only behind one that ends over the limits.
TEST(Construction, LeavesNothingOfWhatItTakesBack) {
  int second = 0;
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    Rng rng(97, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng, {.replicas = 2, .max_samples = 24});
    of.plan.schedule = "1f1b";
    of.plan.limits.bytes_per_lane = 1;
    StepEvaluator plain(of.plan, of.costs);
    const Placement given = oracle::placement_of(of.assignment, of.costs);
    const std::int64_t bytes =
        std::max(plain.evaluate(given, 0).peak_bytes, plain.evaluate(given, 1).peak_bytes);
    of.plan.limits.bytes_per_lane = std::max<std::int64_t>(1, bytes * (50 + i % 40) / 100);
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
    BatchLoads loads = batch_loads(of.plan, of.costs);
    loads.lane_bytes = activations_of(of.plan, of.costs);
    StepEvaluators evaluators(of.plan, of.costs, 1);
    const std::vector<Evaluated> made = construct(request, loads, evaluators, {.budget = 48});
    ASSERT_TRUE(made.size() == 1 || (made.size() == 2 && !made.front().fits()));
    second += made.size() == 2 ? 1 : 0;
    for (const Evaluated& step : made) {
      validate_assignment(to_assignment(of.costs, step.placement), of.plan, of.costs);
      StepEvaluator fresh(of.plan, of.costs);
      for (const int replica : {0, 1}) {
        const ReplicaTimes times = fresh.evaluate(step.placement, replica);
        EXPECT_EQ(times.total_ns, step.times[at(replica)].total_ns);
        EXPECT_EQ(times.over, step.times[at(replica)].over);
      }
    }
  }
  EXPECT_GT(second, 5);
}

}  // namespace
}  // namespace entrain
