#include "entrain/engine/pipeline/real_compute.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/one_lane.h"

namespace entrain::engine {
namespace {

using tiny::one_lane_step;
using tiny::OneLane;
using tiny::Step;

constexpr UnitKey kImages{0, 0, 0, 0};  // the first group of the encoder's first slot

const Group& group_of_unit(const Step& step, const UnitKey& unit) {
  return group_of(step.program.replicas[0], unit);
}

// The forward of the group of images, with a graph or without.
at::Tensor forward_images(OneLane& lane, bool with_graph) {
  const UnitWork work{kImages, group_of_unit(lane.step, kImages), with_graph};
  UnitInput input;
  lane.compute->read(work, input);
  return lane.compute->forward(work, input);
}

at::Tensor all_gradients(const OneLane& lane) {
  std::vector<at::Tensor> flat;
  for (const NamedParameter& parameter : lane.stages.parameters()) {
    flat.push_back(parameter.tensor.grad().flatten());
  }
  return at::cat(flat);
}

TEST(RealCompute, ForwardsAloneLeaveNoGraph) {
  const Step step = one_lane_step();
  OneLane lane(step);
  lane.compute->begin_step(lane.inputs, RunMode::kEvaluate);
  const at::Tensor features = forward_images(lane, /*with_graph=*/false);
  EXPECT_FALSE(features.requires_grad());
  EXPECT_EQ(features.sizes(),
            at::IntArrayRef(output_shape(
                {step.model, step.program, step.costs}, kImages, group_of_unit(step, kImages))));
  lane.compute->end_step();
}

TEST(RealCompute, WhatIsSentOnHasNoGraphOfItsOwn) {
  const Step step = one_lane_step();
  OneLane lane(step);
  lane.compute->begin_step(lane.inputs, RunMode::kTrain);
  const at::Tensor features = forward_images(lane, /*with_graph=*/true);
  EXPECT_FALSE(features.requires_grad());
  const UnitWork work{kImages, group_of_unit(step, kImages), true};
  EXPECT_FALSE(lane.compute->backward(work, at::ones_like(features), /*split=*/false).defined());
  lane.compute->end_step();
  EXPECT_GT(lane.stages.parameters().front().tensor.grad().abs().sum().item<double>(), 0);
}

TEST(RealCompute, HalvesOfABackwardAddUpToTheWhole) {
  const Step step = one_lane_step();
  std::vector<at::Tensor> gradients;
  for (const bool split : {false, true}) {
    OneLane lane(step);
    lane.compute->begin_step(lane.inputs, RunMode::kTrain);
    const at::Tensor features = forward_images(lane, true);
    const UnitWork work{kImages, group_of_unit(step, kImages), true};
    lane.compute->backward(work, at::ones_like(features), split);
    if (split) {
      lane.compute->backward_weight(work);
    }
    lane.compute->end_step();
    gradients.push_back(all_gradients(lane).clone());
  }
  EXPECT_GT(gradients[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(at::allclose(gradients[1], gradients[0], 1e-6, 1e-7));
}

TEST(RealCompute, DividesLossesByTheTargetsOfTheWholeStep) {
  const Step step = one_lane_step();
  std::vector<at::Tensor> gradients;
  std::vector<double> losses;
  for (const int factor : {1, 4}) {
    OneLane lane(step);
    lane.inputs.target_tokens *= factor;
    losses.push_back(lane.run().loss_sum);
    gradients.push_back(all_gradients(lane).clone());
  }
  EXPECT_EQ(losses[0], losses[1]) << "the reported loss is a sum";
  EXPECT_TRUE(at::allclose(gradients[0], 4 * gradients[1], 1e-6, 1e-9));
}

TEST(RealCompute, RefusesHalvesThatAreMissing) {
  const Step step = one_lane_step();
  OneLane lane(step);
  const UnitWork work{kImages, group_of_unit(step, kImages), true};
  lane.compute->begin_step(lane.inputs, RunMode::kTrain);
  EXPECT_THROW(lane.compute->backward(work, {}, false), InternalError);
  EXPECT_THROW(lane.compute->backward_weight(work), InternalError);
  const at::Tensor features = forward_images(lane, true);
  EXPECT_THROW(lane.compute->end_step(), InternalError) << "a graph is left";
  lane.compute->backward(work, at::ones_like(features), /*split=*/true);
  EXPECT_THROW(lane.compute->end_step(), InternalError) << "a weight half is left";
  lane.compute->backward_weight(work);
  lane.compute->end_step();
  lane.inputs.data = nullptr;
  EXPECT_THROW(lane.compute->begin_step(lane.inputs, RunMode::kTrain), InternalError);
}

}  // namespace
}  // namespace entrain::engine
