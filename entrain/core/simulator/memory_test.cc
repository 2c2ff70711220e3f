#include "entrain/core/simulator/memory.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::TwoLanes;

TEST(MemoryOverTime, KeepsASplitBackwardsActivationsUntilTheWeightHalf) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 I0 <B1 I1 W0 W1", "<F0 <F1 F0 I0 >B0 F1 B1 >B1 W0");
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{100, 100, 200, 200, 200, 200, 200, 200, 200, 100}));
  // The LLM's features go with the input half.
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 1),
            (std::vector<std::int64_t>{10, 20, 120, 120, 110, 210, 210, 100, 100}));
  EXPECT_EQ(simulate(lanes.program, lanes.costs).lanes[0][1].peak_bytes, 210);
}

TEST(MemoryOverTime, FreesWhatTakesNoBackwardWithItsForward) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1", "<F0 F0 <F1 F1");
  for (auto& module : lanes.program.replicas[0].groups) {
    for (auto& slot : module) {
      slot[0].takes_backward = {0};
    }
  }
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{100, 0, 100, 0}));
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 1),
            (std::vector<std::int64_t>{10, 110, 10, 110}));
}

}  // namespace
}  // namespace entrain
