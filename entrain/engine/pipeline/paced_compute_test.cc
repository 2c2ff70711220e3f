#include "entrain/engine/pipeline/paced_compute.h"

#include <gtest/gtest.h>

#include "tests/oracle/engine/one_lane.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;
using tiny::one_lane_step;
using tiny::OneLane;
using tiny::Step;

// A step in which every operation of a stage takes so long.
Step slow_step(milliseconds time) {
  Step step = one_lane_step();
  for (ModuleCosts& module : step.costs.modules) {
    for (StageCosts& stage : module.stages) {
      stage.reduce = stage.optimizer = time;
    }
  }
  return step;
}

struct Paced {
  explicit Paced(const Step& step) : lane(step), compute(lane.context) {
    compute.begin_step(lane.inputs, RunMode::kTrain);
  }
  [[nodiscard]] UnitWork work(const UnitKey& unit) const {
    return {unit, group_of(lane.step.program.replicas[0], unit), true};
  }
  [[nodiscard]] at::IntArrayRef shape(const UnitKey& unit) {
    shape_ = output_shape({lane.step.model, lane.step.program, lane.step.costs},
                          unit,
                          group_of(lane.step.program.replicas[0], unit));
    return shape_;
  }

  OneLane lane;
  PacedCompute compute;

 private:
  std::vector<std::int64_t> shape_;
};

// No test here can fail on a busy machine: waits have a least length, never a greatest.
template <class Call>
void expect_at_least(std::chrono::nanoseconds time, const Call& call) {
  const auto start = LaneCompute::Clock::now();
  call();
  EXPECT_GE(LaneCompute::Clock::now() - start, time);
}

constexpr UnitKey kImages{0, 0, 0, 0};
constexpr UnitKey kFirst{1, 0, 0, 0};  // of the LLM's stages
constexpr UnitKey kLast{1, 1, 0, 0};

TEST(PacedCompute, GivesTensorsOfTheRightShapes) {
  const Step step = one_lane_step();
  Paced paced(step);
  UnitInput input;
  EXPECT_EQ(paced.compute.forward(paced.work(kImages), input).sizes(), paced.shape(kImages));
  EXPECT_EQ(paced.compute.forward(paced.work(kFirst), input).sizes(), paced.shape(kFirst));
  EXPECT_FALSE(paced.compute.forward(paced.work(kLast), input).defined()) << "a loss, not rows";
  EXPECT_EQ(paced.compute.backward(paced.work(kLast), {}, false).sizes(), paced.shape(kFirst));
  EXPECT_FALSE(paced.compute.backward(paced.work(kFirst), {}, true).defined()) << "no stage before";
}

TEST(PacedCompute, WaitsForThePredictedTimes) {
  const Step step = slow_step(milliseconds(2));
  Paced paced(step);
  UnitInput input;
  for (const UnitKey& unit : {kImages, kFirst, kLast}) {
    const Group& group = paced.work(unit).group;
    expect_at_least(operation_time(step.costs, OperationKind::kForward, unit, group),
                    [&] { paced.compute.forward(paced.work(unit), input); });
    expect_at_least(operation_time(step.costs, OperationKind::kBackward, unit, group),
                    [&] { paced.compute.backward(paced.work(unit), {}, false); });
    expect_at_least(operation_time(step.costs, OperationKind::kBackwardWeight, unit, group),
                    [&] { paced.compute.backward_weight(paced.work(unit)); });
  }
  // Three stages, one after another.
  expect_at_least(milliseconds(6),
                  [&] { EXPECT_FALSE(paced.compute.reduce_gradients().has_value()); });
  int steps = 0;
  expect_at_least(milliseconds(6), [&] { paced.compute.step_optimizer([&] { ++steps; }); });
  EXPECT_EQ(steps, 1);
}

TEST(PacedCompute, GivesFeaturesGradientsOfTheirShape) {
  const Step step = one_lane_step();
  Paced paced(step);
  UnitInput input;
  input.features.resize(2);
  input.features[0].leaf = at::ones({3, 24}).requires_grad_(true);
  input.features[1].leaf = at::ones({2, 24});
  paced.compute.read(paced.work(kFirst), input);
  EXPECT_EQ(input.features[0].leaf.grad().sizes(), at::IntArrayRef({3, 24}));
  EXPECT_FALSE(input.features[1].leaf.grad().defined()) << "nothing trainable before it";
}

TEST(PacedCompute, HasNeitherLossesNorNorms) {
  const Step step = one_lane_step();
  Paced paced(step);
  EXPECT_EQ(paced.compute.take_losses(), 0);
  EXPECT_EQ(paced.compute.clip_gradients(), 0);
}

}  // namespace
}  // namespace entrain::engine
