#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::two_slots_with_link;
using oracle::TwoLanes;

TEST(LaneBound, AddsTheCheapestWayInAndOut) {
  // The LLM lane: 23 ns until the first features arrive, 60 of work, 13 + 20 to the last encoder
  // backward's end; this program cannot be faster than it is.
  const TwoLanes lanes = two_slots_with_link();
  EXPECT_EQ(lane_bound(lanes.program, lanes.costs).count(), 23 + 60 + 33);
}

TEST(LaneBound, TakesTheHeaviestLaneOfAllReplicas) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 >B0");
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1", "<F0 F0 B0 >B0 <F1 F1 B1 >B1");
  EXPECT_EQ(lane_bound(lanes.program, lanes.costs).count(), 10 + 60 + 20);
}

// Slot 1 holds the second half of slot 0's sample, whose features come at 100 ns; its own come at
// 10 ns.
TEST(LaneBound, FollowsTheChainOfChunks) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B1 B1 <B0 B0", "<F0 <F1 F0 F1 B1 >B1 B0 >B0");
  lanes.costs.modules[0].stages[0].units[0].time.forward = std::chrono::nanoseconds{100};
  const std::int64_t apart = lane_bound(lanes.program, lanes.costs).count();
  auto& groups = lanes.program.replicas[0].groups[1];
  groups[0][0].later = {{1, 0}};
  groups[1][0].earlier = {{0, 0}};
  const std::int64_t linked = lane_bound(lanes.program, lanes.costs).count();
  EXPECT_EQ(apart, 100 + 10 + 40) << "vision's own work";
  EXPECT_EQ(linked, 100 + 60 + 20) << "no LLM operation can start before";
}

}  // namespace
}  // namespace entrain
