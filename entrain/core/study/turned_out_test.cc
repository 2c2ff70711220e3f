#include "entrain/core/study/turned_out.h"

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

// Forward time of a sample's first unit.
std::int64_t forward_ns(const StepCosts& costs, int module, int stage, int sample) {
  const ModuleCosts& of = costs.modules[at(module)];
  return of.stages[at(stage)].units[at(of.first_unit[at(sample)])].time.forward.count();
}

// Two samples in each of two replicas, an encoder of one stage and an LLM of two.
class TurnedOut : public testing::Test {
 protected:
  TurnedOut() {
    plan_.replicas = 2;
    plan_.modules.resize(2);
    plan_.lanes = {{{0, 0}}, {{1, 0}}, {{1, 1}}};
    costs_.num_samples = 4;
    for (const int stages : {1, 2}) {
      ModuleCosts& module = costs_.modules.emplace_back();
      module.first_unit = {0, 1, 2, 3, 4};
      module.stages.resize(at(stages));
      for (StageCosts& stage : module.stages) {
        stage.units.own().resize(4);
        for (UnitCost& unit : stage.units) {
          unit.time.forward = std::chrono::nanoseconds(1000);
        }
      }
    }
    for (const int first : {0, 2}) {
      const Slot both = {{first}, {first + 1}};
      assignment_.replicas.push_back({1, {{both}, {both}}});
    }
  }
  Plan plan_;
  StepCosts costs_;
  StepAssignment assignment_;
};

TEST_F(TurnedOut, ASlowDeviceIsInOneReplica) {
  const StepCosts slow = slow_device(costs_, plan_, assignment_, 1, 1.5);
  for (int sample = 0; sample < 4; ++sample) {
    EXPECT_EQ(forward_ns(slow, 1, 0, sample), sample < 2 ? 1000 : 1500);
    EXPECT_EQ(forward_ns(slow, 1, 1, sample), 1000);
    EXPECT_EQ(forward_ns(slow, 0, 0, sample), 1000);
  }
}

TEST_F(TurnedOut, ASlowStageIsInAllReplicas) {
  const StepCosts slow = slow_stage(costs_, plan_, 1.5);
  for (int sample = 0; sample < 4; ++sample) {
    EXPECT_EQ(forward_ns(slow, 1, 0, sample), 1500);
    EXPECT_EQ(forward_ns(slow, 1, 1, sample), 1000);
  }
}

// Whatever the slow devices host takes longer.
TEST_F(TurnedOut, ASlowLaneSlowsAllItsStages) {
  plan_.lanes = {{{0, 0}, {1, 0}}, {{1, 1}}};
  const StepCosts slow = slow_device(costs_, plan_, assignment_, 0, 2);
  EXPECT_EQ(forward_ns(slow, 0, 0, 0), 2000);
  EXPECT_EQ(forward_ns(slow, 0, 0, 2), 1000);
}

TEST_F(TurnedOut, DrawnCostsDifferBySampleAndModule) {
  EXPECT_EQ(forward_ns(drawn_costs(costs_, 0, 1), 1, 1, 3), 1000);
  const StepCosts drawn = drawn_costs(costs_, 0.3, 1);
  EXPECT_EQ(forward_ns(drawn, 1, 0, 0), forward_ns(drawn, 1, 1, 0));
  EXPECT_NE(forward_ns(drawn, 1, 0, 0), forward_ns(drawn, 1, 0, 1));
  EXPECT_NE(forward_ns(drawn, 1, 0, 0), forward_ns(drawn, 0, 0, 0));
  EXPECT_NE(forward_ns(drawn, 1, 0, 0), forward_ns(drawn_costs(costs_, 0.3, 2), 1, 0, 0));
}

}  // namespace
}  // namespace entrain
