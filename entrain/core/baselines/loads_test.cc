#include "entrain/core/baselines/loads.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(BatchLoads, StandForEachModulesHeaviestLane) {
  oracle::HandCase hand = oracle::make_plain_case({2, 2}, 3);
  for (UnitCost& unit : hand.costs.modules[0].stages[1].units) {
    unit.time.forward = nanoseconds{100};
  }
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.lanes, (std::vector<int>{1, 2}));
  EXPECT_EQ(loads.unit[0][0][0], 120.0);  // 100 forward, 20 backward
  EXPECT_EQ(loads.llm[0][1], 30.0);
  EXPECT_EQ(loads.sample[0], (Load{120.0, 30.0, 0.0, 0.0}));
  EXPECT_EQ(loads.total, (Load{360.0, 90.0, 0.0, 0.0}));
}

TEST(BatchLoads, SumModulesThatShareALane) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 2);
  hand.plan.lanes = {{{0, 0}, {1, 0}}};
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.lanes, (std::vector<int>{0}));
  EXPECT_EQ(loads.sample[1], (Load{60.0, 0.0, 0.0, 0.0}));
}

TEST(BatchLoads, AreTheSameWhetherRunsAreKnown) {
  const Plan plan = oracle::paper_plan();
  StepCosts costs =
      step_costs(oracle::paper_model(), plan, oracle::paper_profile(), oracle::batch_of_runs());
  const BatchLoads with_runs = batch_loads(plan, costs);
  ASSERT_EQ(costs.modules[0].runs.size(), 5U);
  costs.modules[0].runs.clear();
  const BatchLoads loads = batch_loads(plan, costs);
  EXPECT_EQ(with_runs.unit, loads.unit);
  EXPECT_EQ(with_runs.sample, loads.sample);
  EXPECT_EQ(with_runs.lanes, loads.lanes);
}

TEST(BatchLoads, OrderSamplesByTheirLargestShare) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 3);
  hand.costs.modules[0].stages[0].units[1].time.forward = nanoseconds{500};
  hand.costs.modules[1].stages[0].units[2].time.forward = nanoseconds{5000};
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.descending, (std::vector<int>{2, 1, 0}));
}

TEST(BatchLoads, KnowTextOnlySamples) {
  const oracle::HandCase hand = oracle::make_hand_case({1, 1}, 1, {{0, {{0}}}, {0, {{}}}});
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.text_only, (std::vector<char>{0, 1}));
}

}  // namespace
}  // namespace entrain
