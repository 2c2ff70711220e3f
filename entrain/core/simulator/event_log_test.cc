#include "entrain/core/simulator/event_log.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/two_lanes.h"

namespace entrain::simulation {
namespace {

TEST(EventLog, TakesEventsInOrder) {
  const ReplayLane first{.replica = 0, .lane = 0};
  const ReplayLane second{.replica = 0, .lane = 1};
  EventLog log(true);
  log.add(second, 0, EventCategory::kCompute, 0, 1);
  log.add(first, 2, EventCategory::kCompute, 7, 9);
  log.add(first, 2, EventCategory::kWait, 3, 7);
  log.add(first, 1, EventCategory::kSend, 8, 9);
  std::vector<std::vector<int>> seen;
  for (const TimelineEvent& event : log.take()) {
    seen.push_back({event.lane, event.operation, static_cast<int>(event.start.count())});
  }
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{0, 1, 8}, {0, 2, 3}, {0, 2, 7}, {1, 0, 0}}));
  EXPECT_TRUE(log.take().empty());
}

TEST(EventLog, KeepsNothingUnlessEnabled) {
  EventLog log(false);
  log.add(ReplayLane{}, 0, EventCategory::kCompute, 0, 1);
  EXPECT_FALSE(log.enabled());
  EXPECT_TRUE(log.take().empty());
}

TEST(EventLog, RefusesAReceiveThatNothingSends) {
  oracle::TwoLanes lanes(1);
  lanes.add_replica("F0 >F0", "<F0 F0 <B0");
  EXPECT_NO_THROW(simulate(lanes.program, lanes.costs));
  try {
    simulate(lanes.program, lanes.costs, {.events = true});
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("replica 0 lane 1 operation 2"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace entrain::simulation
