#include "entrain/core/simulator/tables.h"

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
  EXPECT_EQ(tables.first_llm_unit(1), 5);
  EXPECT_EQ(tables.num_llm_groups(1), 1);
  EXPECT_EQ(tables.totals(0).forward, 10);
  EXPECT_FALSE(tables.totals(0).takes_backward);
  EXPECT_TRUE(tables.totals(1).takes_backward);
  for (const UnitKey& unknown : std::vector<UnitKey>{
           {2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 1}, {-1, -1, -1, -1}}) {
    EXPECT_THROW((void)tables.unit_of(unknown), InvalidInput);
  }
}

TEST(ReplicaTables, ListWhatServesAnLlmSlot) {
  const Case fixture;
  const StageTable stages(fixture.program);
  const ReplicaTables tables(fixture.program, stages, fixture.costs, 0);
  ASSERT_EQ(tables.first_serving(0), 0);
  ASSERT_EQ(tables.first_serving(1), 1);
  ASSERT_EQ(tables.first_serving(2), 3);
  EXPECT_EQ(tables.serving(0).unit, 1);
  EXPECT_EQ(tables.serving(1).unit, 1);
  EXPECT_EQ(tables.serving(2).unit, 3);
  EXPECT_FALSE(tables.serving(0).crosses);
  EXPECT_EQ(tables.num_takers(), (std::vector<int>{0, 2, 0, 1, 0, 0}));
}

}  // namespace
}  // namespace entrain::simulation
