#include "entrain/core/simulator/barriers.h"

#include <vector>

#include <gtest/gtest.h>

namespace entrain::simulation {
namespace {

// Two replicas of two lanes.
struct BarriersFixture {
  BarriersFixture() : clocks(4) {
    for (int i = 0; i < 4; ++i) {
      LaneClock& clock = clocks[static_cast<std::size_t>(i)];
      clock.time = 10 * i;
      lanes.push_back({.replica = i / 2, .lane = i % 2, .clock = &clock});
    }
  }
  const std::int64_t* arrive(Barriers& barriers, int lane, int ordinal) {
    return barriers.arrive(lanes[static_cast<std::size_t>(lane)], lane, ordinal, runnable);
  }

  std::vector<LaneClock> clocks;
  std::vector<ReplayLane> lanes;
  std::vector<int> runnable;
};

TEST(Barriers, LetALaneOfAllReplicasGoOnAtTheLatestTime) {
  BarriersFixture fixture;
  Barriers barriers({1, 2}, 4);
  EXPECT_EQ(fixture.arrive(barriers, 3, 0), nullptr);
  EXPECT_EQ(fixture.arrive(barriers, 3, 0), nullptr);  // asking again is not coming again
  EXPECT_TRUE(fixture.lanes[3].at_barrier);
  const std::int64_t* latest = fixture.arrive(barriers, 1, 0);
  ASSERT_NE(latest, nullptr);
  EXPECT_EQ(*latest, 30);
  EXPECT_EQ(fixture.runnable, (std::vector<int>{3}));
  EXPECT_FALSE(fixture.lanes[1].at_barrier);
  latest = fixture.arrive(barriers, 3, 0);
  ASSERT_NE(latest, nullptr);
  EXPECT_EQ(*latest, 30);
}

TEST(Barriers, KeepTheirRoundsApart) {
  BarriersFixture fixture;
  Barriers barriers({0, 1}, 4);
  for (const int ordinal : {0, 1}) {
    fixture.runnable.clear();
    for (const int lane : {2, 0, 1}) {
      EXPECT_EQ(fixture.arrive(barriers, lane, ordinal), nullptr);
    }
    const std::int64_t* latest = fixture.arrive(barriers, 3, ordinal);
    ASSERT_NE(latest, nullptr);
    EXPECT_EQ(*latest, 30 + 5 * ordinal);
    EXPECT_EQ(fixture.runnable, (std::vector<int>{0, 1, 2}));
    for (ReplayLane& lane : fixture.lanes) {
      lane.at_barrier = false;
      lane.clock->time += 5;
    }
  }
}

}  // namespace
}  // namespace entrain::simulation
