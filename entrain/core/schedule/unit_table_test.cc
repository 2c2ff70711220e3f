#include "entrain/core/schedule/unit_table.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

// Encoder slot 0: parts 0→1 and 0→2; slot 1: part 1→1. LLM slots 1 and 2.
UnitTable small_table() {
  const oracle::HandCase hand_case =
      oracle::make_hand_case({2, 3}, 3, {{1, {{0}}}, {2, {{0}}}, {1, {{1}}}});
  return {build_groups(hand_case.assignment.replicas[0], hand_case.costs), {2, 3}};
}

TEST(UnitTable, NumbersEveryUnitOnce) {
  const UnitTable table = small_table();
  ASSERT_EQ(table.groups().size(), 5U);
  std::set<int> units;
  for (int group = 0; group < 5; ++group) {
    const UnitKey key = table.key(group, 0);
    EXPECT_EQ(table.group_number(key), group);
    for (int stage = 0; stage < table.num_stages(key.module); ++stage) {
      units.insert(table.unit_number(group, stage));
    }
  }
  EXPECT_EQ(table.num_units(), 3 * 2 + 2 * 3);
  EXPECT_EQ(static_cast<int>(units.size()), table.num_units());
  EXPECT_EQ(*units.rbegin(), table.num_units() - 1);
}

TEST(UnitTable, NumbersStagesInModuleOrder) {
  const UnitTable table = small_table();
  EXPECT_EQ(table.stage_number(0, 1), 1);
  EXPECT_EQ(table.stage_number(1, 0), 2);
  EXPECT_EQ(table.num_all_stages(), 5);
}

TEST(UnitTable, ListsEncoderGroupsByLlmSlot) {
  const UnitTable table = small_table();
  EXPECT_EQ(table.opened_by().begin, (std::vector<int>{0, 0, 2, 3}));
  EXPECT_EQ(table.opened_by().groups, (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(table.released_by().groups, (std::vector<int>{0, 2, 1}));
}

TEST(UnitTable, KnowsTheFirstStageWithABackward) {
  oracle::HandCase hand_case = oracle::make_hand_case({2, 1}, 1, {{0, {{0}}}});
  hand_case.costs.modules[0].stages[0].trainable = false;
  const UnitTable projector(build_groups(hand_case.assignment.replicas[0], hand_case.costs),
                            {2, 1});
  EXPECT_EQ(projector.entry(0).first_backward_stage, 1);
  set_trainable(hand_case, 0, false);
  const UnitTable frozen(build_groups(hand_case.assignment.replicas[0], hand_case.costs), {2, 1});
  EXPECT_EQ(frozen.entry(0).first_backward_stage, 2);
}

// Sample 0 in LLM slots 0 and 2, sample 1 in slots 1 and 2, their images in encoder slot 0.
TEST(UnitTable, ReleasesChunksWithTheSlotInWhichTheirSampleEnds) {
  oracle::HandCase hand_case =
      oracle::make_hand_case({1, 1}, 3, {{0, {{0}}}, {1, {{0}}}, {0, {{0}}}, {1, {{}}}});
  cut_sample(hand_case, 0, {0, 2}, {0, 6});
  cut_sample(hand_case, 1, {1, 2}, {0, 6});
  const UnitTable table(build_groups(hand_case.assignment.replicas[0], hand_case.costs), {1, 1});
  // Encoder groups: 0 for sample 2, 1 for sample 0, 2 for sample 1. LLM groups: 3 and 4 in slot 0,
  // 5 and 6 in slot 1, 7 in slot 2.
  EXPECT_EQ(table.llm_released_by().begin, (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(table.llm_released_by().groups, (std::vector<int>{3, 5, 7, 6, 4}));
  EXPECT_EQ(table.released_by().begin, (std::vector<int>{0, 1, 1, 3}));
  EXPECT_EQ(table.released_by().groups, (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(table.opened_by().groups, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(table.entry(4).release_slot, 2);
  EXPECT_EQ(table.entry(1).completing_slot, 0);
}

}  // namespace
}  // namespace entrain
