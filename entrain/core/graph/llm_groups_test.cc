#include "entrain/core/graph/llm_groups.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::cut_sample;
using oracle::HandCase;
using oracle::make_hand_case;

const ModuleSlots& llm_slots(const HandCase& hand_case) {
  return hand_case.assignment.replicas[0].modules.back();
}

std::vector<int> samples_of(const Group& group) {
  std::vector<int> result;
  for (const WorkItem& item : group.items) {
    result.push_back(item.sample);
  }
  return result;
}

using Samples = std::vector<int>;
using Refs = std::vector<LlmGroupRef>;

TEST(LlmGroups, AreOneASlotWithoutChunks) {
  const HandCase hand_case = make_hand_case({1}, 3, {{0, {}}, {0, {}}, {2, {}}});
  LlmGroups groups(llm_slots(hand_case), hand_case.costs);
  EXPECT_EQ(groups.num_groups(), 2);
  EXPECT_EQ(groups.ref(1), (LlmGroupRef{2, 0}));
  EXPECT_EQ(groups.release_slot(1), 2);
  const ModuleGroups slots = groups.take_groups();
  EXPECT_EQ(samples_of(slots[0][0]), (Samples{0, 1}));
  EXPECT_TRUE(slots[1].empty());
  EXPECT_TRUE(slots[0][0].later.empty());
}

// Sample 0 in slots 0, 1, 3; 1 in slots 0, 3; 2 in slots 1, 2; whole samples 3 to 6, one a slot.
HandCase three_cut() {
  HandCase hand_case =
      make_hand_case({1}, 4, {{0, {}}, {0, {}}, {1, {}}, {0, {}}, {1, {}}, {2, {}}, {3, {}}});
  cut_sample(hand_case, 0, {0, 1, 3}, {0, 4, 8});
  cut_sample(hand_case, 1, {0, 3}, {0, 6});
  cut_sample(hand_case, 2, {1, 2}, {0, 6});
  return hand_case;
}

TEST(LlmGroups, HoldWhatEndsInTheSameSlot) {
  const HandCase hand_case = three_cut();
  LlmGroups groups(llm_slots(hand_case), hand_case.costs);
  std::vector<int> releases;
  for (int number = 0; number < groups.num_groups(); ++number) {
    releases.push_back(groups.release_slot(number));
  }
  EXPECT_EQ(releases, (std::vector<int>{0, 3, 1, 2, 3, 2, 3}));
  const ModuleGroups slots = groups.take_groups();
  ASSERT_EQ(slots[0].size(), 2U);
  EXPECT_EQ(samples_of(slots[0][0]), (Samples{3}));
  EXPECT_EQ(samples_of(slots[0][1]), (Samples{0, 1}));
  ASSERT_EQ(slots[1].size(), 3U);
  EXPECT_EQ(samples_of(slots[1][0]), (Samples{4}));
  EXPECT_EQ(samples_of(slots[1][1]), (Samples{2}));
  EXPECT_EQ(samples_of(slots[1][2]), (Samples{0}));
  ASSERT_EQ(slots[2].size(), 1U);
  EXPECT_EQ(samples_of(slots[2][0]), (Samples{5, 2}));
  ASSERT_EQ(slots[3].size(), 1U);
  EXPECT_EQ(samples_of(slots[3][0]), (Samples{6, 0, 1}));
}

TEST(LlmGroups, LinkNeighbouringChunks) {
  const HandCase hand_case = three_cut();
  LlmGroups groups(llm_slots(hand_case), hand_case.costs);
  const ModuleGroups slots = groups.take_groups();
  EXPECT_TRUE(slots[0][0].later.empty());
  EXPECT_EQ(slots[0][1].later, (Refs{{1, 2}, {3, 0}}));
  EXPECT_EQ(slots[1][1].later, (Refs{{2, 0}}));
  EXPECT_EQ(slots[1][2].earlier, (Refs{{0, 1}}));
  EXPECT_EQ(slots[1][2].later, (Refs{{3, 0}}));
  EXPECT_EQ(slots[2][0].earlier, (Refs{{1, 1}}));
  EXPECT_EQ(slots[3][0].earlier, (Refs{{0, 1}, {1, 2}}));
}

TEST(LlmGroups, KnowWhoTakesASegmentsFeatures) {
  HandCase hand_case = make_hand_case({1, 1}, 3, {{0, {{0, 0, 0}}}, {1, {{0}}}});
  cut_sample(hand_case, 0, {0, 2}, {0, 3});
  const LlmGroups groups(llm_slots(hand_case), hand_case.costs);
  const auto taker = [&](int sample, int segment) {
    return groups.ref(groups.taker(0, {.sample = sample, .segment = segment})).slot;
  };
  EXPECT_EQ(taker(0, 0), 0);
  EXPECT_EQ(taker(0, 1), 0);  // tokens 2 and 3: the chunks meet between them
  EXPECT_EQ(taker(0, 2), 2);
  EXPECT_EQ(taker(1, 0), 1);
}

TEST(LlmGroups, KnowWhoIsNotThere) {
  const HandCase hand_case = make_hand_case({1, 1}, 1, {{0, {{0}}}});
  const LlmGroups groups(ModuleSlots(1), hand_case.costs);
  EXPECT_EQ(groups.taker(0, {.sample = 0, .segment = 0}), -1);
}

}  // namespace
}  // namespace entrain
