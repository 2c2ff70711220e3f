#include "entrain/core/planner/plan_units.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

// Two samples with three segments in all, one encoder stage and two LLM stages.
StepCosts make_costs() {
  StepCosts costs;
  costs.num_samples = 2;
  costs.modules.resize(2);
  costs.modules[0].stages.resize(1);
  costs.modules[0].first_unit = {0, 2, 3};
  costs.modules[1].stages.resize(2);
  costs.modules[1].first_unit = {0, 1, 2};
  return costs;
}

TEST(UnitStages, CountUnitsOnStages) {
  Plan plan;
  plan.lanes = {{{0, 0}}, {{1, 0}}, {{1, 1}}};
  EXPECT_EQ(unit_stages(plan, make_costs()), 3 + 2 * 2);
}

TEST(UnitStages, CountSamplesFiveTimesMoreOnSharedLanes) {
  Plan plan;
  plan.lanes = {{{0, 0}, {1, 0}}, {{1, 1}}};
  EXPECT_EQ(unit_stages(plan, make_costs()), (3 + 10) + 2 * (2 + 10));
}

}  // namespace
}  // namespace entrain
