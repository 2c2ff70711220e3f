#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

Program build_gpipe(const HandCase& hand_case) {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "gpipe");
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

TEST(Gpipe, RunsAllForwardsFirst) {
  const Program program = build_gpipe(make_plain_case({1, 2}, 3));
  for (int lane = 0; lane < 3; ++lane) {
    EXPECT_EQ(compute_text(program, 0, lane), "F0 F1 F2 B0 B1 B2");
  }
}

TEST(Gpipe, OrdersBackwardsByTheLlmSlotThatReleasesThem) {
  const Program program =
      build_gpipe(make_hand_case({1, 1}, 3, {{2, {{0}}}, {0, {{0}}}, {1, {{1}}}, {2, {{2}}}}));
  EXPECT_EQ(compute_text(program, 0, 0), "F0.0 F0.1 F1 F2 B0.0 B1 B0.1 B2");
}

TEST(Gpipe, RunsAllForwardsFirstOnASingleLane) {
  HandCase hand_case = make_plain_case({1, 1}, 2);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(compute_text(build_gpipe(hand_case), 0, 0),
            "vision0:F0 llm0:F0 vision0:F1 llm0:F1 llm0:B0 vision0:B0 llm0:B1 vision0:B1");
}

// Sample 0 in all three slots, sample 1 in slot 1, sample 2 in slots 1 and 2.
TEST(Gpipe, RunsBackwardsOfChunksInFallingSlotOrder) {
  HandCase hand_case = make_hand_case({1}, 3, {{0, {}}, {1, {}}, {1, {}}});
  cut_sample(hand_case, 0, {0, 1, 2}, {0, 4, 8});
  cut_sample(hand_case, 2, {1, 2}, {0, 6});
  EXPECT_EQ(compute_text(build_gpipe(hand_case), 0, 0), "F0 F1.0 F1.1 F2 B1.0 B2 B1.1 B0");
}

}  // namespace
}  // namespace entrain
