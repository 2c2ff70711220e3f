#include "entrain/core/report/critical_path.h"

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(CriticalPath, FollowsTheTwoSlotExample) {
  const oracle::TwoLanes lanes = oracle::two_slots_with_link();
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  std::string text;
  for (const TimelineEvent& event : critical_path(lanes.program, timeline)) {
    text += (event.category == EventCategory::kSend ? ">" : "") + std::to_string(event.lane) + " ";
  }
  // F0, its message, F0 B0 F1 B1 of the LLM, B1's message, B1.
  EXPECT_EQ(text, "0 >0 1 1 1 1 >1 0 ");
}

TEST(LaneAccounts, SplitTheTwoSlotExample) {
  const oracle::TwoLanes lanes = oracle::two_slots_with_link();
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  ASSERT_EQ(timeline.makespan, nanoseconds{116});
  const std::vector<LaneAccount> accounts = lane_accounts(lanes.program, timeline);
  EXPECT_EQ(accounts[1].fill, nanoseconds{23}) << "F0 and its message";
  EXPECT_EQ(accounts[1].transfer, nanoseconds{13});
  EXPECT_EQ(accounts[1].forward, nanoseconds{20});
  EXPECT_EQ(accounts[1].backward, nanoseconds{40});
  EXPECT_EQ(accounts[1].waits(), nanoseconds{0});
  EXPECT_EQ(accounts[1].drain, nanoseconds{33}) << "B1's message and B1 of the encoder";
  EXPECT_EQ(accounts[0].fill, nanoseconds{0});
  EXPECT_EQ(accounts[0].gradient, nanoseconds{116 - 60});
}

TEST(CriticalPath, CoversTheStepWithoutGapInRandomCases) {
  for (int i = 0; i < 1500; ++i) {
    Rng rng(20261121, static_cast<std::uint64_t>(i));
    oracle::RandomCase random_case = oracle::make_random_case(rng);
    random_case.costs.reduce_buckets = i % 3 == 0 ? 1 + i % 4 : 0;
    for (const char* schedule : {"gpipe", "1f1b"}) {
      const Program program =
          build_program(random_case.plan, random_case.assignment, random_case.costs, schedule);
      const Timeline timeline = simulate(program, random_case.costs, {.events = true});
      nanoseconds time{0};
      for (const TimelineEvent& event : critical_path(program, timeline)) {
        ASSERT_EQ(event.start, time) << oracle::describe(random_case);
        time = event.finish;
      }
      ASSERT_EQ(time, timeline.makespan) << oracle::describe(random_case);
      for (const LaneAccount& account : lane_accounts(program, timeline)) {
        const LaneUsage& usage = timeline.lanes[static_cast<std::size_t>(account.replica)]
                                               [static_cast<std::size_t>(account.lane)];
        ASSERT_EQ(account.busy(), usage.busy);
        ASSERT_EQ(account.busy() + account.fill + account.waits() + account.drain +
                      account.reduction + account.optimizer,
                  timeline.makespan)
            << oracle::describe(random_case);
        ASSERT_LE(account.transfer, account.fill + account.waits());
      }
    }
  }
}

}  // namespace
}  // namespace entrain
