#include "entrain/core/planner/shaped_plan.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/shaped_plans.h"
#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// Layers: 4 of vision (embedding and projector included), 6 of the LLM.
ModelSpec shared_lanes_model() {
  return oracle::tiny_model(1, 2, 4);
}

const LayerTimes kTimes = {{1, 1, 1, 3}, {5, 1, 1, 1, 1, 1}};

TEST(InterleavedPlan, WrapsEveryModuleOnItsOwnLanes) {
  const Plan plan = oracle::interleaved_plan(shared_lanes_model(), kTimes, {1, 2}, {2, 2}, 3, 8);
  const std::vector<std::vector<StageRef>> lanes = {
      {{0, 0}, {0, 1}}, {{1, 0}, {1, 2}}, {{1, 1}, {1, 3}}};
  EXPECT_EQ(plan.lanes, lanes);
  EXPECT_EQ(plan.schedule, "interleaved");
  EXPECT_EQ(plan.replicas, 3);
  EXPECT_EQ(plan.num_slots, 8);
  EXPECT_EQ(plan.modules[0].stages, (std::vector<LayerRange>{{0, 3}, {3, 4}}));
  EXPECT_EQ(plan.modules[1].stages[0], (LayerRange{0, 1}));  // the heavy layer stays alone
}

TEST(InterleavedPlan, RefusesCountsThatCannotBe) {
  const ModelSpec model = shared_lanes_model();
  EXPECT_THROW(oracle::interleaved_plan(model, kTimes, {1, 2}, {2, 4}, 1, 1), InvalidInput);
  EXPECT_THROW(oracle::interleaved_plan(model, kTimes, {0, 2}, {1, 1}, 1, 1), InvalidInput);
  EXPECT_THROW(oracle::interleaved_plan(model, kTimes, {1, 2}, {1, -1}, 1, 1), InvalidInput);
  EXPECT_THROW(oracle::interleaved_plan(model, kTimes, {2}, {1}, 1, 1), InvalidInput);
  EXPECT_THROW(oracle::interleaved_plan(model, kTimes, {1, 2}, {1, 2}, 0, 1), InvalidInput);
}

TEST(ColocatedPlan, PutsEveryModuleOnEveryLane) {
  const Plan plan = oracle::colocated_plan(shared_lanes_model(), kTimes, 3, 2, 8);
  const std::vector<std::vector<StageRef>> lanes = {
      {{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}, {{0, 2}, {1, 2}}};
  EXPECT_EQ(plan.lanes, lanes);
  EXPECT_EQ(plan.schedule, "dip");
  EXPECT_EQ(plan.modules[0].stages, (std::vector<LayerRange>{{0, 1}, {1, 3}, {3, 4}}));
  EXPECT_EQ(plan.modules[1].stages[0], (LayerRange{0, 1}));
}

TEST(ColocatedPlan, RefusesMoreLanesThanLayers) {
  EXPECT_NO_THROW(oracle::colocated_plan(shared_lanes_model(), kTimes, 4, 1, 1));
  EXPECT_THROW(oracle::colocated_plan(shared_lanes_model(), kTimes, 5, 1, 1), InvalidInput);
  EXPECT_THROW(oracle::colocated_plan(shared_lanes_model(), kTimes, 0, 1, 1), InvalidInput);
}

}  // namespace
}  // namespace entrain
