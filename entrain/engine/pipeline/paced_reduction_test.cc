#include "entrain/engine/pipeline/paced_reduction.h"

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/two_lanes.h"

namespace entrain::engine {
namespace {

using std::chrono::nanoseconds;

// What the simulator says of a step is what ranks find that run exactly as it says.
TEST(PacedReduction, HasTheSimulatorsBuckets) {
  oracle::TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 reduce clip step",
                    "<F0 F0 B0 >B0 <F1 F1 B1 >B1 reduce clip step");
  lanes.add_replica("F0 >F0 <B0 B0 reduce clip step", "<F0 F0 B0 >B0 reduce clip step");
  lanes.costs.modules[0].stages[0].reduce = nanoseconds{5};
  lanes.costs.modules[1].stages[0].reduce = nanoseconds{100};
  lanes.costs.reduce_buckets = 2;
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  for (int lane = 0; lane < 2; ++lane) {
    ThreadCommGroup group(2);
    run_ranks(group, [&](int replica) {
      PacedReduction reduction(1);
      std::vector<simulation::Bucket> expected;
      for (const TimelineEvent& event : timeline.events) {
        if (event.replica != replica || event.lane != lane) {
          continue;
        }
        const Operation& operation =
            lanes.program.replicas[static_cast<std::size_t>(replica)]
                .lanes[static_cast<std::size_t>(lane)][static_cast<std::size_t>(event.operation)];
        if (operation.kind == OperationKind::kBackward &&
            event.category == EventCategory::kCompute) {
          reduction.ran(0, event.start, event.finish);
        } else if (operation.kind == OperationKind::kReduceGradients &&
                   event.category == EventCategory::kSend) {
          expected.push_back({event.start.count(), event.finish.count()});
        }
      }
      const std::vector<simulation::Bucket> buckets =
          reduction.buckets(lanes.program, lanes.costs, lane, group.comm(replica), {0, 1});
      ASSERT_EQ(buckets.size(), 2U);
      ASSERT_EQ(expected.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(buckets[i].start, expected[i].start);
        EXPECT_EQ(buckets[i].finish, expected[i].finish);
      }
    });
  }
}

// Of three stages, two of them trained, on one lane of two replicas.
TEST(PacedReduction, KeepsTheTimesOfALanesStagesApart) {
  Program program;
  program.lanes = {{{0, 0}, {1, 0}, {1, 1}}};
  program.num_stages = {1, 2};
  program.replicas.resize(2);
  StepCosts costs;
  costs.reduce_buckets = 1;
  costs.modules.resize(2);
  costs.modules[0].stages.resize(1);
  costs.modules[1].stages.resize(2);
  costs.modules[1].stages[0].trainable = true;
  costs.modules[1].stages[0].reduce = nanoseconds{5};
  costs.modules[1].stages[1].trainable = true;
  costs.modules[1].stages[1].reduce = nanoseconds{7};
  ThreadCommGroup group(2);
  run_ranks(group, [&](int replica) {
    PacedReduction reduction(3);
    reduction.ran(0, nanoseconds{900}, nanoseconds{1000});
    reduction.ran(1, nanoseconds{200}, nanoseconds{replica == 0 ? 310 : 300});
    reduction.ran(2, nanoseconds{100}, nanoseconds{replica == 0 ? 150 : 160});
    const std::vector<simulation::Bucket> buckets =
        reduction.buckets(program, costs, 0, group.comm(replica), {0, 1});
    ASSERT_EQ(buckets.size(), 2U);
    EXPECT_EQ(buckets[0].start, 160);
    EXPECT_EQ(buckets[0].finish, 167);
    EXPECT_EQ(buckets[1].start, 310);
    EXPECT_EQ(buckets[1].finish, 315);
  });
}

}  // namespace
}  // namespace entrain::engine
