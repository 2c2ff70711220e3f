#include "entrain/core/graph/groups.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::make_hand_case;
using std::chrono::nanoseconds;

std::vector<Group> groups_of_slot(const HandCase& hand_case, int module, int slot) {
  return build_groups(
      hand_case.assignment.replicas[0],
      hand_case.costs)[static_cast<std::size_t>(module)][static_cast<std::size_t>(slot)];
}

std::vector<std::vector<int>> llm_slots(const std::vector<Group>& groups) {
  std::vector<std::vector<int>> result;
  for (const Group& group : groups) {
    result.push_back(group.llm_slots);
  }
  return result;
}

// Encoder slot 0 with three parts of one segment each: LLM slots 0, 1 and 3. A unit's forward and
// backward take 30 ns a stage.
HandCase three_parts() {
  return make_hand_case({1, 1}, 4, {{3, {{0}}}, {0, {{0}}}, {1, {{0}}}});
}

void set_launch(HandCase& hand_case, int forward_and_backward) {
  for (StageCosts& stage : hand_case.costs.modules[0].stages) {
    stage.launch.forward = nanoseconds{forward_and_backward / 2};
    stage.launch.backward_weight = nanoseconds{forward_and_backward - forward_and_backward / 2};
  }
}

TEST(BuildGroups, SeparatesPartsByLlmSlot) {
  const std::vector<Group> groups = groups_of_slot(three_parts(), 0, 0);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(llm_slots(groups), (std::vector<std::vector<int>>{{0}, {1}, {3}}));
  EXPECT_EQ(groups[0].items, (Slot{{.sample = 1, .segment = 0}}));
  EXPECT_EQ(groups[2].items, (Slot{{.sample = 0, .segment = 0}}));
  EXPECT_EQ(groups[2].part_sizes, std::vector<int>{1});
}

TEST(BuildGroups, KeepsPackingOrderWithinAPart) {
  HandCase hand_case = make_hand_case({1, 1}, 2, {{1, {{0, 0}}}, {0, {{0}}}, {1, {{0}}}});
  Slot& slot = hand_case.assignment.replicas[0].modules[0][0];
  slot = {{.sample = 2, .segment = 0},
          {.sample = 0, .segment = 1},
          {.sample = 1, .segment = 0},
          {.sample = 0, .segment = 0}};
  const std::vector<Group> groups = groups_of_slot(hand_case, 0, 0);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(
      groups[1].items,
      (Slot{
          {.sample = 2, .segment = 0}, {.sample = 0, .segment = 1}, {.sample = 0, .segment = 0}}));
  EXPECT_EQ(groups[1].part_sizes, std::vector<int>{3});
}

// Without a backward too: the LLM's slot 0 need not wait for what slots 1 and 3 take.
TEST(BuildGroups, LeavesThePartsOfAFrozenEncoder) {
  HandCase hand_case = three_parts();
  set_trainable(hand_case, 0, false);
  const std::vector<Group> groups = groups_of_slot(hand_case, 0, 0);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[2].llm_slots, std::vector<int>{3});
  EXPECT_EQ(groups[2].part_sizes, std::vector<int>{1});
  EXPECT_EQ(groups[2].takes_backward, std::vector<char>{0});
}

TEST(BuildGroups, LeavesPartsThatPayForTheirLaunch) {
  HandCase hand_case = three_parts();
  set_launch(hand_case, 30);
  EXPECT_EQ(llm_slots(groups_of_slot(hand_case, 0, 0)),
            (std::vector<std::vector<int>>{{0}, {1}, {3}}));
}

// 30 ns of work against a launch of 31: the first two parts together pay; the last is tiny and two
// slots later than the group before it.
TEST(BuildGroups, JoinsATinyPartToTheNext) {
  HandCase hand_case = three_parts();
  set_launch(hand_case, 31);
  EXPECT_EQ(llm_slots(groups_of_slot(hand_case, 0, 0)),
            (std::vector<std::vector<int>>{{0, 1}, {3}}));
}

TEST(BuildGroups, JoinsATinyLastPartToItsNeighbourOneSlotEarlier) {
  HandCase hand_case = make_hand_case({1, 1}, 3, {{0, {{0, 0}}}, {1, {{0}}}});
  set_launch(hand_case, 31);
  const std::vector<Group> groups = groups_of_slot(hand_case, 0, 0);
  ASSERT_EQ(llm_slots(groups), (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_EQ(groups[0].part_sizes, (std::vector<int>{2, 1}));
  EXPECT_EQ(groups[0].items.size(), 3U);
}

TEST(BuildGroups, GivesEmptySlotsNoGroup) {
  const HandCase hand_case = make_hand_case({1, 1}, 3, {{1, {{1}}}});
  EXPECT_TRUE(groups_of_slot(hand_case, 0, 0).empty());
  EXPECT_TRUE(groups_of_slot(hand_case, 1, 2).empty());
  EXPECT_EQ(groups_of_slot(hand_case, 1, 1).size(), 1U);
}

TEST(BuildGroups, TakesBackwardFromTheFirstTrainableStage) {
  HandCase hand_case = make_hand_case({3, 2}, 2, {{0, {{0}}}, {1, {{}}}});
  hand_case.costs.modules[0].stages[0].trainable = false;
  hand_case.costs.modules[0].stages[2].trainable = false;
  hand_case.costs.modules[1].stages[0].trainable = false;
  EXPECT_EQ(groups_of_slot(hand_case, 0, 0)[0].takes_backward, (std::vector<char>{0, 1, 1}));
  // With image features on the way the LLM's frozen first stage takes part; with text it does not.
  EXPECT_EQ(groups_of_slot(hand_case, 1, 0)[0].takes_backward, (std::vector<char>{1, 1}));
  EXPECT_EQ(groups_of_slot(hand_case, 1, 1)[0].takes_backward, (std::vector<char>{0, 1}));
}

// Sample 0's two images in encoder slot 0, features at tokens 0-1 and 2-3; sample 1's beside them.
HandCase cut_case(const std::vector<std::int64_t>& begins) {
  HandCase hand_case = make_hand_case({1, 2}, 2, {{0, {{0, 0}}}, {0, {{0}}}});
  cut_sample(hand_case, 0, {0, 1}, begins);
  return hand_case;
}

TEST(BuildGroups, GivesASegmentToTheChunkThatHoldsItsFirstFeature) {
  // A part for whole samples of slot 0, one for the chunk there that goes on.
  const std::vector<Group> straddled = groups_of_slot(cut_case({0, 3}), 0, 0);
  ASSERT_EQ(llm_slots(straddled), (std::vector<std::vector<int>>{{0}, {0}}));
  EXPECT_EQ(straddled[0].items, (Slot{{.sample = 1, .segment = 0}}));
  EXPECT_TRUE(straddled[0].llm_groups.empty());
  EXPECT_EQ(straddled[1].items, (Slot{{.sample = 0, .segment = 0}, {.sample = 0, .segment = 1}}));
  EXPECT_EQ(straddled[1].llm_groups, (std::vector<int>{1}));
  // The second image begins with the second chunk.
  const std::vector<Group> apart = groups_of_slot(cut_case({0, 2}), 0, 0);
  ASSERT_EQ(llm_slots(apart), (std::vector<std::vector<int>>{{0}, {0}, {1}}));
  EXPECT_EQ(apart[2].items, (Slot{{.sample = 0, .segment = 1}}));
}

// Launch 31 against parts of 30 ns: the tiny part of slot 0's whole sample takes in the next one,
// which is released by slot 1; what is tiny then and released with slot 1 joins.
TEST(BuildGroups, JoinsTinyPartsByTheSlotThatReleasesThem) {
  HandCase hand_case = cut_case({0, 2});
  set_launch(hand_case, 31);
  const std::vector<Group> groups = groups_of_slot(hand_case, 0, 0);
  ASSERT_EQ(llm_slots(groups), (std::vector<std::vector<int>>{{0, 0, 1}}));
  EXPECT_EQ(groups[0].llm_groups, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(groups[0].part_sizes, (std::vector<int>{1, 1, 1}));
}

// The tiny part of a chunk that is released with slot 3 takes in nothing that is released before:
// sample 1's two images would wait for it. What is tiny itself may.
TEST(BuildGroups, DelaysNoOtherPartForATinyOne) {
  HandCase hand_case = make_hand_case({1, 1}, 4, {{0, {{0}}}, {1, {{0, 0}}}});
  set_launch(hand_case, 31);
  EXPECT_EQ(llm_slots(groups_of_slot(hand_case, 0, 0)), (std::vector<std::vector<int>>{{0, 1}}));
  cut_sample(hand_case, 0, {0, 3}, {0, 6});
  EXPECT_EQ(llm_slots(groups_of_slot(hand_case, 0, 0)), (std::vector<std::vector<int>>{{0}, {1}}));
  set_launch(hand_case, 61);
  EXPECT_EQ(llm_slots(groups_of_slot(hand_case, 0, 0)), (std::vector<std::vector<int>>{{0, 1}}));
}

// A frozen LLM: the image is in the first chunk, the loss of the text behind it flows back there.
TEST(BuildGroups, TakesBackwardWhereAnEarlierChunkDoes) {
  HandCase hand_case = make_hand_case({1, 2}, 3, {{0, {{0}}}, {1, {{}}}, {2, {{}}}});
  set_trainable(hand_case, 1, false);
  cut_sample(hand_case, 0, {0, 1, 2}, {0, 4, 8});
  EXPECT_EQ(groups_of_slot(hand_case, 1, 0)[0].takes_backward, (std::vector<char>{1, 1}));
  const std::vector<Group> middle = groups_of_slot(hand_case, 1, 1);
  ASSERT_EQ(middle.size(), 2U);
  EXPECT_EQ(middle[0].takes_backward, (std::vector<char>{0, 0}));
  EXPECT_EQ(middle[1].takes_backward, (std::vector<char>{1, 1}));
  EXPECT_EQ(groups_of_slot(hand_case, 1, 2)[0].takes_backward, (std::vector<char>{1, 1}));
}

TEST(BuildGroups, NoticesEncoderWorkAfterItsLlmSlot) {
  HandCase hand_case = make_hand_case({1, 1}, 2, {{0, {{1}}}});
  EXPECT_THROW(build_groups(hand_case.assignment.replicas[0], hand_case.costs), InternalError);
}

}  // namespace
}  // namespace entrain
