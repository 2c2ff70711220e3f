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

}  // namespace
}  // namespace entrain
