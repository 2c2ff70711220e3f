#include "entrain/core/spec/timeline.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

using std::chrono::nanoseconds;

LaneUsage busy(std::int64_t nanos) {
  LaneUsage usage;
  usage.busy = nanoseconds(nanos);
  return usage;
}

TEST(BubbleFraction, IsTheIdleShareOfAllLanes) {
  Timeline timeline;
  timeline.makespan = nanoseconds(100);
  timeline.lanes = {{busy(100), busy(50)}, {busy(30), busy(20)}};
  EXPECT_DOUBLE_EQ(bubble_fraction(timeline), 0.5);
}

TEST(BubbleFraction, IsZeroWithoutIdleTime) {
  Timeline timeline;
  timeline.makespan = nanoseconds(7);
  timeline.lanes = {{busy(7), busy(7)}};
  EXPECT_EQ(bubble_fraction(timeline), 0.0);
}

TEST(BubbleFraction, StaysWithinZeroAndOne) {
  Timeline timeline;
  timeline.makespan = nanoseconds(10);
  timeline.lanes = {{busy(12)}};  // measured times may overlap the step's edges
  EXPECT_EQ(bubble_fraction(timeline), 0.0);
  timeline.lanes = {{busy(0)}};
  EXPECT_EQ(bubble_fraction(timeline), 1.0);
}

TEST(BubbleFraction, IsZeroForAnEmptyTimeline) {
  EXPECT_EQ(bubble_fraction(Timeline{}), 0.0);
  Timeline timeline;
  timeline.lanes = {{busy(0)}};
  EXPECT_EQ(bubble_fraction(timeline), 0.0);
}

}  // namespace
}  // namespace entrain
