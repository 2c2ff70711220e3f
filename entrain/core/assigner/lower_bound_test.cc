// tests/property/assignment_test.cc holds the proof by exhaustion; here are values by hand.
#include "entrain/core/assigner/lower_bound.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Every unit takes 10 ns forward and 20 ns backward on a stage.
TEST(StepLowerBound, AddsHeadWorkAndTailOfALane) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 2}, 5);
  // Lane 2, LLM stage 1: 20 ns to get there, 5 × 30 ns, 40 ns back.
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{20 + 150 + 40});
}

TEST(StepLowerBound, HasNoTailWhereWeightGradientsMayComeLater) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 2}, 5);
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "entrain"), nanoseconds{20 + 150});
}

// A long sample's input gradients still run one behind the other, then its last weight half.
TEST(StepLowerBound, FollowsInputGradientsWhereBackwardIsSplit) {
  oracle::HandCase hand = oracle::make_plain_case({1, 2}, 2);
  std::int64_t chain = 0;
  for (int module = 0; module < 2; ++module) {
    for (StageCosts& stage : hand.costs.modules[static_cast<std::size_t>(module)].stages) {
      OperationTimes& time = stage.units[0].time;
      time = {nanoseconds{1000}, nanoseconds{module == 0 ? 0 : 700}, nanoseconds{300}};
      chain += 1000 + (module == 0 ? 300 : 700);
    }
  }
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "entrain").count(), chain);
}

TEST(StepLowerBound, TakesTheReplicaThatMustHoldMost) {
  oracle::HandCase hand = oracle::make_plain_case({1}, 4);
  hand.plan.replicas = 3;  // four equal samples: one replica has two
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{60});
  hand.costs.modules[0].stages[0].units[2].time.forward = nanoseconds{500};
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{520});
}

TEST(StepLowerBound, FollowsALongSampleThroughAllStages) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 3);
  for (int module = 0; module < 2; ++module) {
    hand.costs.modules[static_cast<std::size_t>(module)].stages[0].units[1].time.forward =
        nanoseconds{1000};
  }
  // Both others pass it somewhere, by a forward at least.
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"),
            nanoseconds{1000 + 1000 + 20 + 20 + 2 * 10});
  hand.plan.replicas = 2;  // which holds them
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{1000 + 1000 + 20 + 20});
}

// Behind a frozen encoder a long sample's way ends at the LLM's first stage.
TEST(StepLowerBound, FollowsALongSampleOfAFrozenEncoder) {
  oracle::HandCase hand = oracle::make_plain_case({1, 2}, 3);
  oracle::set_trainable(hand, 0, false);
  for (UnitCost& unit : hand.costs.modules[0].stages[0].units) {
    unit.time = {.forward = nanoseconds{7}};
  }
  for (StageCosts& stage : hand.costs.modules[1].stages) {
    stage.units[0].time.forward = nanoseconds{1000};
  }
  // 7 ns there, 2 × 1020 ns of the LLM, and 10 ns of each other sample, or 7 ns of the encoder.
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{7 + 2040 + 2 * 10});
}

TEST(StepLowerBound, WaitsForTheLlmAfterAFrozenEncoder) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 6);
  oracle::set_trainable(hand, 0, false);
  for (UnitCost& unit : hand.costs.modules[0].stages[0].units) {
    unit.time = {.forward = nanoseconds{100}};
  }
  // 600 ns of encoder work, then the last sample's way through the LLM.
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{600 + 10 + 20});
}

TEST(StepLowerBound, CountsReductionAndOptimizer) {
  oracle::HandCase hand = oracle::make_plain_case({1}, 4);
  hand.costs.modules[0].stages[0].reduce = nanoseconds{7};
  hand.costs.modules[0].stages[0].optimizer = nanoseconds{5};
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{120 + 5});
  hand.plan.replicas = 2;
  EXPECT_EQ(step_lower_bound(hand.plan, hand.costs, "1f1b"), nanoseconds{60 + 7 + 5});
}

TEST(StepLowerBound, IsTheSameWhetherRunsAreKnown) {
  const Plan plan = oracle::paper_plan();
  StepCosts costs =
      step_costs(oracle::paper_model(), plan, oracle::paper_profile(), oracle::batch_of_runs());
  ASSERT_EQ(costs.modules[0].runs.size(), 5U);
  StepCosts without = costs;
  without.modules[0].runs.clear();
  for (const bool heavy_encoder : {false, true}) {
    for (StepCosts* of : {&costs, &without}) {
      for (StageCosts& stage : of->modules[0].stages) {
        for (UnitCost& unit : stage.units) {
          unit.time.forward *= heavy_encoder ? 100 : 1;
        }
      }
    }
    for (const char* schedule : {"1f1b", "entrain"}) {
      EXPECT_EQ(step_lower_bound(plan, costs, schedule), step_lower_bound(plan, without, schedule))
          << schedule << (heavy_encoder ? ", encoders bind" : "");
    }
  }
}

}  // namespace
}  // namespace entrain
