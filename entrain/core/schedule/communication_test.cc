#include "entrain/core/schedule/communication.h"

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::lane_text;
using oracle::make_hand_case;
using oracle::make_plain_case;

Program build_communication(const HandCase& hand_case, const char* schedule = "1f1b") {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

TEST(Communication, SendsBehindProducersAndReceivesOneOperationAhead) {
  const Program program = build_communication(make_plain_case({1, 1}, 3));
  EXPECT_EQ(lane_text(program, 0, 0), "F0 >F0 <B0 F1 >F1 B0 <B1 F2 >F2 <B2 B1 B2 clip step");
  EXPECT_EQ(lane_text(program, 0, 1), "<F0 F0 <F1 B0 >B0 F1 <F2 B1 >B1 F2 B2 >B2 clip step");
}

// Part 0→2 is sent before slot 1's, though needed after it: the receives follow the sender.
TEST(Communication, ReceivesInTheSendersOrder) {
  const Program program = build_communication(
      make_hand_case({1, 1}, 3, {{0, {{0}}}, {2, {{0}}}, {1, {{1}}}, {2, {{2}}}}), "gpipe");
  EXPECT_EQ(lane_text(program, 0, 1),
            "<F0.0 <F0.1 <F1 F0 <F2 F1 F2 B0 >B0.0 B1 >B1 B2 >B0.1 >B2 clip step");
}

// One group of tiny parts: one message for LLM slots 0 and 1, none back to a frozen encoder.
TEST(Communication, SendsAGroupOnceForAllItsSlots) {
  HandCase hand_case = make_hand_case({1, 1}, 2, {{0, {{0}}}, {1, {{0}}}});
  set_trainable(hand_case, 0, false);
  hand_case.costs.modules[0].stages[0].launch.forward = std::chrono::nanoseconds{100};
  const Program program = build_communication(hand_case);
  EXPECT_EQ(lane_text(program, 0, 0), "F0 >F0 clip step");
  EXPECT_EQ(lane_text(program, 0, 1), "<F0 F0 B0 F1 B1 clip step");
}

// One group of LLM slots 0 and 1 (tiny parts): its gradient is complete after slot 1's backward.
TEST(Communication, ReturnsAGroupsGradientAfterItsLastSlot) {
  HandCase hand_case = make_hand_case({1, 1}, 2, {{0, {{0}}}, {1, {{0}}}});
  hand_case.costs.modules[0].stages[0].launch.forward = std::chrono::nanoseconds{100};
  const Program program = build_communication(hand_case);
  EXPECT_EQ(lane_text(program, 0, 0), "<B0 F0 >F0 B0 clip step");
  EXPECT_EQ(lane_text(program, 0, 1), "<F0 F0 B0 F1 B1 >B0 clip step");
}

TEST(Communication, StopsWhereNothingNearerTheInputIsTrainable) {
  HandCase hand_case = make_plain_case({1, 2}, 1);
  set_trainable(hand_case, 0, false);
  hand_case.costs.modules[1].stages[0].trainable = false;
  const Program program = build_communication(hand_case);
  EXPECT_EQ(lane_text(program, 0, 1), "<F0 F0 >F0 clip step");
  EXPECT_EQ(lane_text(program, 0, 2), "<F0 F0 B0 clip step");
}

TEST(Communication, StaysAwayFromSharedLanes) {
  HandCase hand_case = make_plain_case({1, 2}, 1);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}, {{1, 1}}};
  const Program program = build_communication(hand_case);
  ASSERT_EQ(program.replicas[0].channels.size(), 2U);
  EXPECT_EQ(lane_text(program, 0, 0),
            "vision0:F0 llm0:<B0 llm0:F0 llm0:>F0 llm0:B0 vision0:B0 clip step");
}

TEST(ChannelTable, HasAPairOfChannelsForEveryEdgeThatCrossesLanes) {
  const HandCase hand_case = make_plain_case({2, 1, 2}, 1);
  const ChannelTable table = channel_table(stage_graph(hand_case.plan, {}));
  EXPECT_EQ(table.activation_of, (std::vector<int>{0, 2, 4, 6, -1}));
  ASSERT_EQ(table.channels.size(), 8U);
  EXPECT_EQ(table.channels[4], (Channel{2, 3, {1, 0}, {2, 0}, false}));
  EXPECT_EQ(table.channels[5], (Channel{3, 2, {1, 0}, {2, 0}, true}));
}

// Sample 0 cut into slots 0 and 1 with an image in each half: gradients come back in falling slot
// order, no message carries keys and values.
TEST(Communication, ReturnsGradientsOfChunksAsTheirBackwardsRun) {
  HandCase hand_case = make_hand_case({1, 1}, 2, {{0, {{0, 0}}}});
  cut_sample(hand_case, 0, {0, 1}, {0, 2});
  const Program program = build_communication(hand_case, "gpipe");
  EXPECT_EQ(lane_text(program, 0, 0), "F0.0 >F0.0 <B0.1 F0.1 >F0.1 <B0.0 B0.1 B0.0 clip step");
  EXPECT_EQ(lane_text(program, 0, 1), "<F0.0 <F0.1 F0 F1 B1 >B0.1 B0 >B0.0 clip step");
}

}  // namespace
}  // namespace entrain
