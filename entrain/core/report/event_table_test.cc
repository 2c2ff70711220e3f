#include "entrain/core/report/event_table.h"

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

TEST(EventTable, FindsTheMessageThatAnOperationWaitedFor) {
  const oracle::TwoLanes lanes = oracle::two_slots_with_link();
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  const EventTable table(lanes.program, timeline);
  const TimelineEvent& first = *table.computes(0, 1).front();
  const TimelineEvent* message = table.before(first);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->category, EventCategory::kSend);
  EXPECT_EQ(table.receive_of(first)->finish, first.start);
  const TimelineEvent* producer = table.before(*message);
  EXPECT_EQ(producer->lane, 0);
  EXPECT_EQ(table.operation_of(*producer).kind, OperationKind::kForward);
  EXPECT_EQ(table.before(*producer), nullptr) << "the step's first operation waits for nothing";
}

TEST(EventTable, EveryWaitEndsWithTheEventBefore) {
  for (int i = 0; i < 300; ++i) {
    Rng rng(7, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng);
    const Program program = build_program(of.plan, of.assignment, of.costs, "1f1b");
    const Timeline timeline = simulate(program, of.costs, {.events = true});
    const EventTable table(program, timeline);
    for (const TimelineEvent& event : timeline.events) {
      if (event.category != EventCategory::kCompute && event.category != EventCategory::kSend) {
        continue;
      }
      const TimelineEvent* before = table.before(event);
      if (before == nullptr) {
        ASSERT_EQ(event.start.count(), 0) << oracle::describe(of);
      } else {
        ASSERT_EQ(before->finish, event.start) << oracle::describe(of);
      }
    }
  }
}

}  // namespace
}  // namespace entrain
