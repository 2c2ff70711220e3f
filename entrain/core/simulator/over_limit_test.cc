#include "entrain/core/simulator/over_limit.h"

#include <gtest/gtest.h>

#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

// The LLM lane holds two slots of 100 bytes and two received outputs of 10 while F1 runs.
oracle::TwoLanes gpipe_of_two() {
  oracle::TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 clip step",
                    "<F0 F0 <F1 F1 B0 >B0 B1 >B1 clip step");
  return lanes;
}

TEST(WorstExcess, NamesLaneOperationAndBytes) {
  const oracle::TwoLanes lanes = gpipe_of_two();
  PlanLimits limits;
  limits.lane_bytes = {200, 150};
  const auto excess = worst_excess(lanes.program, lanes.costs, limits);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->lane, 1);
  EXPECT_EQ(excess->bytes, 220);
  EXPECT_EQ(excess->over(), 70);
  EXPECT_EQ(excess->position, 3) << "F1 is the first operation with both slots held";
  const std::string text = to_string(lanes.program, *excess);
  for (const char* word : {"lane 1", "replica 0", "220 bytes", "slot 1", "150 bytes"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST(WorstExcess, TakesTheLaneThatIsFurthestOver) {
  const oracle::TwoLanes lanes = gpipe_of_two();
  PlanLimits limits;
  limits.lane_bytes = {10, 150};
  EXPECT_EQ(worst_excess(lanes.program, lanes.costs, limits)->lane, 0);
}

TEST(WorstExcess, IsEmptyWithinTheLimitAndWithoutOne) {
  const oracle::TwoLanes lanes = gpipe_of_two();
  PlanLimits limits;
  EXPECT_FALSE(worst_excess(lanes.program, lanes.costs, limits).has_value());
  limits.lane_bytes = {0, 220};
  EXPECT_FALSE(worst_excess(lanes.program, lanes.costs, limits).has_value());
  limits.lane_bytes = {0, 219};
  EXPECT_TRUE(worst_excess(lanes.program, lanes.costs, limits).has_value());
}

}  // namespace
}  // namespace entrain
