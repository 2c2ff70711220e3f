#include "entrain/core/simulator/tables.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain::simulation {
namespace {

using oracle::group_of_items;

// Two encoder stages and one LLM stage; encoder slot 0 serves LLM slots 0 and 1, slot 1 slot 1.
struct Case {
  Case() : costs(oracle::make_plain_case({2, 1}, 2).costs) {
    program.lanes = {{{0, 0}}, {{0, 1}, {1, 0}}};
    program.num_stages = {2, 1};
    ReplicaProgram replica;
    replica.groups = {
        {{group_of_items({{.sample = 0, .segment = 0}}, {0, 1})},
         {group_of_items({{.sample = 1, .segment = 0}}, {1})}},
        {{group_of_items({{.sample = 0}}, {0})}, {group_of_items({{.sample = 1}}, {1})}}};
    for (auto& slot : replica.groups[0]) {
      slot[0].takes_backward = {0, 1};
    }
    replica.lanes.resize(2);
    program.replicas = {replica};
  }
  StepCosts costs;
  Program program;
};

TEST(StageTable, KnowsLanesAndWhatCrosses) {
  const Case fixture;
  const StageTable stages(fixture.program);
  EXPECT_EQ(stages.lane(0, 1), 1);
  EXPECT_EQ(stages.llm_first_lane(), 1);
  EXPECT_TRUE(stages.output_crosses(0, 0));
  EXPECT_FALSE(stages.output_crosses(0, 1));
  EXPECT_FALSE(stages.output_crosses(1, 0));
  EXPECT_TRUE(stages.feeds_llm(0, 1));
  EXPECT_FALSE(stages.feeds_llm(0, 0));
  EXPECT_FALSE(stages.feeds_llm(1, 0));
}

TEST(StageTable, RefusesAStageWithoutALane) {
  Case fixture;
  fixture.program.lanes[1].pop_back();
  EXPECT_THROW(StageTable{fixture.program}, InvalidInput);
}

TEST(ReplicaTables, NumberUnitsGroupByGroup) {
  const Case fixture;
  const StageTable stages(fixture.program);
  const ReplicaTables tables(fixture.program, stages, fixture.costs, 0);
  EXPECT_EQ(tables.num_units(), 6);
  EXPECT_EQ(tables.unit_of({0, 0, 0, 0}), 0);
  EXPECT_EQ(tables.unit_of({0, 1, 0, 0}), 1);
  EXPECT_EQ(tables.unit_of({0, 0, 1, 0}), 2);
  EXPECT_EQ(tables.unit_of({1, 0, 1, 0}), 5);
  EXPECT_EQ(tables.llm_unit({1, 0}), 5);
  EXPECT_EQ(tables.totals(0).forward, 10);
  EXPECT_FALSE(tables.totals(0).takes_backward);
  EXPECT_TRUE(tables.totals(1).takes_backward);
  for (const UnitKey& unknown : std::vector<UnitKey>{
           {2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 1}, {-1, -1, -1, -1}}) {
    EXPECT_THROW((void)tables.unit_of(unknown), InvalidInput);
  }
}

TEST(ReplicaTables, ListWhatServesAnLlmGroup) {
  const Case fixture;
  const StageTable stages(fixture.program);
  const ReplicaTables tables(fixture.program, stages, fixture.costs, 0);
  ASSERT_EQ(tables.serving(4).size(), 1U);
  ASSERT_EQ(tables.serving(5).size(), 2U);
  EXPECT_EQ(tables.serving(4)[0].unit, 1);
  EXPECT_EQ(tables.serving(5)[0].unit, 1);
  EXPECT_EQ(tables.serving(5)[1].unit, 3);
  EXPECT_FALSE(tables.serving(4)[0].crosses);
  EXPECT_EQ(tables.num_takers(), (std::vector<int>{0, 2, 0, 1, 0, 0}));
}

std::vector<int> list_of(std::span<const int> values) {
  return {values.begin(), values.end()};
}

// Sample 0 in chunks in slots 0, 1 and 2, the first two in their slots' second groups; two LLM
// stages, so that groups are 2 units long: slot 0 {0, 1}, {2, 3}; slot 1 {4, 5}, {6, 7}; slot 2.
TEST(ReplicaTables, LinkChunksOnTheirStage) {
  Case fixture;
  fixture.costs = oracle::make_hand_case({2}, 3, {{0, {}}, {0, {}}, {1, {}}}).costs;
  fixture.costs.modules[0].stages[1].key_value_bytes_per_token = 5;
  fixture.program.lanes = {{{0, 0}}, {{0, 1}}};
  fixture.program.num_stages = {2};
  ReplicaProgram& replica = fixture.program.replicas[0];
  const auto chunk = [](std::int64_t begin, std::int64_t end) {
    return WorkItem{.sample = 0, .token_begin = begin, .token_end = end};
  };
  replica.groups = {{{group_of_items({{.sample = 1}}, {0}), group_of_items({chunk(0, 3)}, {0})},
                     {group_of_items({{.sample = 2}}, {1}), group_of_items({chunk(3, 6)}, {1})},
                     {group_of_items({chunk(6, 12)}, {2})}}};
  auto& slots = replica.groups[0];
  for (auto& slot : slots) {
    for (Group& group : slot) {
      group.takes_backward = {1, 1};
    }
  }
  slots[0][1].later = {{1, 1}};
  slots[1][1].earlier = {{0, 1}};
  slots[1][1].later = {{2, 0}};
  slots[2][0].earlier = {{1, 1}};
  const StageTable stages(fixture.program);
  const ReplicaTables tables(fixture.program, stages, fixture.costs, 0);
  EXPECT_EQ(list_of(tables.later(3)), (std::vector<int>{4}));
  EXPECT_EQ(list_of(tables.earlier(7)), (std::vector<int>{-4}));
  EXPECT_EQ(list_of(tables.later(6)), (std::vector<int>{2}));
  EXPECT_EQ(list_of(tables.earlier(9)), (std::vector<int>{-2}));
  EXPECT_EQ(list_of(tables.ended(8)), (std::vector<int>{-6, -2}));
  EXPECT_TRUE(tables.ended(6).empty());
  EXPECT_TRUE(tables.later(0).empty());
  EXPECT_EQ(tables.totals(2).key_value_bytes, 0);
  EXPECT_EQ(tables.totals(3).key_value_bytes, 15);
  EXPECT_EQ(tables.totals(9).key_value_bytes, 0);
  EXPECT_EQ(tables.totals(3).forward, 2);  // 10 ns · 3/12, halves to even
  EXPECT_EQ(tables.totals(7).forward, 3);  // 5 - 2
  EXPECT_EQ(tables.totals(9).forward, 5);
}

}  // namespace
}  // namespace entrain::simulation
