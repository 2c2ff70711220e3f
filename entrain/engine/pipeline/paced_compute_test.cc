#include "entrain/engine/pipeline/paced_compute.h"

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/engine/one_lane.h"
#include "tests/oracle/two_lanes.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
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

constexpr UnitKey kEncoder{0, 0, 0, 0};
constexpr UnitKey kFirst{1, 0, 0, 0};  // of the LLM's stages
constexpr UnitKey kLast{1, 1, 0, 0};

TEST(PacedCompute, GivesTensorsOfTheRightShapes) {
  const Step step = one_lane_step();
  Paced paced(step);
  UnitInput input;
  EXPECT_EQ(paced.compute.forward(paced.work(kEncoder), input).sizes(), paced.shape(kEncoder));
  EXPECT_EQ(paced.compute.forward(paced.work(kFirst), input).sizes(), paced.shape(kFirst));
  EXPECT_FALSE(paced.compute.forward(paced.work(kLast), input).defined()) << "a loss, not rows";
  EXPECT_EQ(paced.compute.backward(paced.work(kLast), {}, false).sizes(), paced.shape(kFirst));
  EXPECT_FALSE(paced.compute.backward(paced.work(kFirst), {}, true).defined()) << "no stage before";
}

TEST(PacedCompute, WaitsForThePredictedTimes) {
  const Step step = slow_step(milliseconds(2));
  Paced paced(step);
  UnitInput input;
  for (const UnitKey& unit : {kEncoder, kFirst, kLast}) {
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

// What the simulator says of a step is what ranks find that run exactly as it says.
TEST(PacedReduction, HasTheSimulatorsBuckets) {
  oracle::TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 reduce clip step",
                    "<F0 F0 B0 >B0 <F1 F1 B1 >B1 reduce clip step");
  lanes.add_replica("F0 >F0 <B0 B0 reduce clip step", "<F0 F0 B0 >B0 reduce clip step");
  lanes.costs.modules[0].stages[0].reduce = nanoseconds{5};
  lanes.costs.modules[1].stages[0].reduce = nanoseconds{100};
  lanes.costs.reduce_buckets = 2;
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  for (int lane = 0; lane < 2; ++lane) {
    ThreadCommGroup group(2);
    run_ranks(group, [&](int replica) {
      PacedReduction reduction(1);
      std::vector<simulation::Bucket> expected;
      for (const TimelineEvent& event : timeline.events) {
        if (event.replica != replica || event.lane != lane) {
          continue;
        }
        const Operation& operation =
            lanes.program.replicas[static_cast<std::size_t>(replica)]
                .lanes[static_cast<std::size_t>(lane)][static_cast<std::size_t>(event.operation)];
        if (operation.kind == OperationKind::kBackward &&
            event.category == EventCategory::kCompute) {
          reduction.ran(0, event.start, event.finish);
        } else if (operation.kind == OperationKind::kReduceGradients &&
                   event.category == EventCategory::kSend) {
          expected.push_back({event.start.count(), event.finish.count()});
        }
      }
      const std::vector<simulation::Bucket> buckets =
          reduction.buckets(lanes.program, lanes.costs, lane, group.comm(replica), {0, 1});
      ASSERT_EQ(buckets.size(), 2U);
      ASSERT_EQ(expected.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(buckets[i].start, expected[i].start);
        EXPECT_EQ(buckets[i].finish, expected[i].finish);
      }
    });
  }
}

// Of three stages, two of them trained, on one lane of two replicas.
TEST(PacedReduction, KeepsTheTimesOfALanesStagesApart) {
  Program program;
  program.lanes = {{{0, 0}, {1, 0}, {1, 1}}};
  program.num_stages = {1, 2};
  program.replicas.resize(2);
  StepCosts costs;
  costs.reduce_buckets = 1;
  costs.modules.resize(2);
  costs.modules[0].stages.resize(1);
  costs.modules[1].stages.resize(2);
  costs.modules[1].stages[0].trainable = true;
  costs.modules[1].stages[0].reduce = nanoseconds{5};
  costs.modules[1].stages[1].trainable = true;
  costs.modules[1].stages[1].reduce = nanoseconds{7};
  ThreadCommGroup group(2);
  run_ranks(group, [&](int replica) {
    PacedReduction reduction(3);
    reduction.ran(0, nanoseconds{900}, nanoseconds{1000});
    reduction.ran(1, nanoseconds{200}, nanoseconds{replica == 0 ? 310 : 300});
    reduction.ran(2, nanoseconds{100}, nanoseconds{replica == 0 ? 150 : 160});
    const std::vector<simulation::Bucket> buckets =
        reduction.buckets(program, costs, 0, group.comm(replica), {0, 1});
    ASSERT_EQ(buckets.size(), 2U);
    EXPECT_EQ(buckets[0].start, 160);
    EXPECT_EQ(buckets[0].finish, 167);
    EXPECT_EQ(buckets[1].start, 310);
    EXPECT_EQ(buckets[1].finish, 315);
  });
}

TEST(WaitUntil, NeverReturnsEarly) {
  using Clock = std::chrono::steady_clock;
  for (const int microseconds : {-50, 0, 20, 500, 3000}) {
    const Clock::time_point target = Clock::now() + std::chrono::microseconds(microseconds);
    wait_until(target);
    EXPECT_GE(Clock::now(), target);
  }
}

}  // namespace
}  // namespace entrain::engine
