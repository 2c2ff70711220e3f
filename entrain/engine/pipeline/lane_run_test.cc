#include "entrain/engine/pipeline/lane_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/pipeline/fault_drill.h"

#include "tests/oracle/engine/one_lane.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::one_lane_step;
using tiny::Step;
using Lane = tiny::OneLane;

std::vector<Operation>& operations_of(Step& step) {
  return step.program.replicas[0].lanes[0];
}

// Every backward in halves, all weight halves behind the last input half, in the same order.
void split_backwards(Step& step) {
  auto& operations = operations_of(step);
  std::vector<Operation> weights;
  for (Operation& operation : operations) {
    if (operation.kind == OperationKind::kBackward) {
      operation.kind = OperationKind::kBackwardInput;
      weights.push_back({OperationKind::kBackwardWeight, operation.unit, -1});
    }
  }
  const auto end = std::find_if(
      operations.begin(), operations.end(), [](const Operation& of) { return of.unit.module < 0; });
  operations.insert(end, weights.begin(), weights.end());
}

int count(const Step& step, OperationKind kind) {
  const auto& operations = step.program.replicas[0].lanes[0];
  return static_cast<int>(
      std::count_if(operations.begin(), operations.end(), [&](const Operation& operation) {
        return operation.kind == kind;
      }));
}

// One slot of samples without pictures.
void make_text_only(Step& step, int num_samples) {
  const std::vector<SampleWork> work(static_cast<std::size_t>(num_samples),
                                     tiny::sample_of({}, 4, 1));
  step.costs = step_costs(
      step.model, step.plan, analytic_profile(step.model, device_model("cpu-2core")), work);
  StepAssignment assignment;
  ReplicaAssignment& replica = assignment.replicas.emplace_back();
  replica.num_slots = 1;
  replica.modules = {{{}}, {{}}};
  step.ids.clear();
  for (int sample = 0; sample < num_samples; ++sample) {
    replica.modules[1][0].push_back({.sample = sample});
    step.ids.push_back(concat("sample-", sample));
  }
  step.program = build_program(step.plan, assignment, step.costs, "1f1b");
}

TEST(LaneRun, SaysWhatItIsDoing) {
  const Step step = one_lane_step();
  Lane lane(step);
  LaneRun run(lane.context, *lane.compute, lane.inputs, RunMode::kTrain);
  const Operation& first = step.program.replicas[0].lanes[0][0];
  const int sample = group_of(step.program.replicas[0], first.unit).items[0].sample;
  EXPECT_TRUE(run.where().starts_with(concat("rank 0 (replica 0 lane 0), step 5, ",
                                             to_string(step.program, first),
                                             ", samples sample-",
                                             sample)))
      << run.where();
  std::string place;
  run.run([&] { place = run.where(); });
  EXPECT_EQ(place, "rank 0 (replica 0 lane 0), step 5, optimizer_step");
  EXPECT_EQ(run.where(), "rank 0 (replica 0 lane 0), step 5, end of the step");
}

TEST(LaneRun, NamesSixteenSamplesAndCountsTheRest) {
  Step step = one_lane_step();
  make_text_only(step, 20);
  Lane lane(step);
  const std::string where =
      LaneRun(lane.context, *lane.compute, lane.inputs, RunMode::kTrain).where();
  EXPECT_NE(where.find("samples sample-0, sample-1, "), std::string::npos) << where;
  EXPECT_TRUE(where.ends_with("sample-15 and 4 more")) << where;
}

TEST(LaneRun, EvaluationLeavesOutAllThatBelongsToGradients) {
  const Step step = one_lane_step();
  Lane lane(step);
  const auto never = [] { FAIL() << "an optimizer step in an evaluation"; };
  const StepOutcome judged = lane.run(never, RunMode::kEvaluate);
  for (const NamedParameter& parameter : lane.stages.parameters()) {
    EXPECT_EQ(parameter.tensor.grad().abs().max().item<float>(), 0) << parameter.name;
  }
  const StepOutcome trained = lane.run();
  EXPECT_EQ(judged.loss_sum, trained.loss_sum);
  EXPECT_EQ(judged.gradient_norm, 0);
  EXPECT_GT(trained.gradient_norm, 0);
}

TEST(LaneRun, SplitBackwardsGiveTheGradientsOfWholeOnes) {
  Step step = one_lane_step();
  Lane whole(step);
  whole.run();
  split_backwards(step);
  Lane split(step);
  split.run();
  const auto& expected = whole.stages.parameters();
  const auto& actual = split.stages.parameters();
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(actual[i].tensor.grad(), expected[i].tensor.grad())) << actual[i].name;
  }
}

TEST(LaneRun, RecordsBothHalvesOfASplitBackward) {
  Step step = one_lane_step();
  const int backwards = count(step, OperationKind::kBackward);
  split_backwards(step);
  ExecutorOptions options = tiny::seeded_options();
  options.record_events = true;
  Lane lane(step, options);
  const StepOutcome outcome = lane.run();
  std::map<OperationKind, int> recorded;
  std::chrono::nanoseconds busy{0};
  for (const TimelineEvent& event : outcome.events) {
    const Operation& operation = operations_of(step)[static_cast<std::size_t>(event.operation)];
    if (event.category == EventCategory::kCompute && operation.unit.module >= 0) {
      ++recorded[operation.kind];
      busy += event.finish - event.start;
    }
  }
  EXPECT_GT(backwards, 0);
  EXPECT_EQ(recorded[OperationKind::kBackwardInput], backwards);
  EXPECT_EQ(recorded[OperationKind::kBackwardWeight], backwards);
  EXPECT_EQ(recorded[OperationKind::kBackward], 0);
  EXPECT_GT(busy.count(), 0);
}

// While inputs wait for their weight halves, they are held: what a step holds at most rises with
// the number of halves that wait.
TEST(LaneRun, HoldsWhatAWeightHalfReadsUntilIt) {
  Step step = one_lane_step();
  ExecutorOptions options = tiny::seeded_options();
  options.measure_memory = true;
  const auto peak_of = [&](const Step& of) {
    Lane lane(of, options);
    return lane.run().usage.peak_bytes;
  };
  const std::int64_t whole = peak_of(step);
  split_backwards(step);
  const std::int64_t late = peak_of(step);
  EXPECT_GT(2 * late, 3 * whole);
  // Each weight half directly behind its input half.
  auto& operations = operations_of(step);
  std::erase_if(operations, [](const Operation& operation) {
    return operation.kind == OperationKind::kBackwardWeight;
  });
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == OperationKind::kBackwardInput) {
      const Operation weight{OperationKind::kBackwardWeight, operations[i].unit, -1};
      operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1, weight);
    }
  }
  EXPECT_LT(peak_of(step), late);
  EXPECT_GE(peak_of(step), whole);
}

TEST(LaneRun, NoticesAWeightHalfBeforeItsInputHalf) {
  Step step = one_lane_step();
  split_backwards(step);
  auto& operations = operations_of(step);
  const auto weight =
      std::find_if(operations.begin(), operations.end(), [](const Operation& operation) {
        return operation.kind == OperationKind::kBackwardWeight;
      });
  std::rotate(operations.begin(), weight, weight + 1);
  Lane lane(step);
  const std::string message = error_of<InternalError>([&] { lane.run(); });
  EXPECT_NE(message.find("a weight half before its input half"), std::string::npos) << message;
}

TEST(LaneRun, NoticesAWeightHalfThatIsLeftOver) {
  Step step = one_lane_step();
  split_backwards(step);
  auto& operations = operations_of(step);
  operations.erase(
      std::find_if(operations.begin(), operations.end(), [](const Operation& operation) {
        return operation.kind == OperationKind::kBackwardWeight;
      }));
  Lane lane(step);
  const std::string message = error_of<InternalError>([&] { lane.run(); });
  EXPECT_NE(message.find("left over"), std::string::npos) << message;
}

TEST(LaneRun, NoticesABackwardBeforeItsForward) {
  Step step = one_lane_step();
  auto& operations = operations_of(step);
  const auto backward =
      std::find_if(operations.begin(), operations.end(), [](const Operation& operation) {
        return operation.kind == OperationKind::kBackward;
      });
  std::rotate(operations.begin(), backward, backward + 1);
  Lane lane(step);
  const std::string message = error_of<InternalError>([&] { lane.run(); });
  EXPECT_NE(message.find("backward without a forward"), std::string::npos) << message;
}

TEST(LaneRun, NoticesWhatIsLeftOverAtTheEnd) {
  Step step = one_lane_step();
  auto& operations = operations_of(step);
  // The last backward of the encoder: nothing waits for it.
  const auto last =
      std::find_if(operations.rbegin(), operations.rend(), [](const Operation& operation) {
        return operation.kind == OperationKind::kBackward && operation.unit.module == 0;
      });
  ASSERT_NE(last, operations.rend());
  operations.erase(std::next(last).base());
  Lane lane(step);
  const std::string message = error_of<InternalError>([&] { lane.run(); });
  EXPECT_NE(message.find("left over"), std::string::npos) << message;
}

// The gradients do not tell: there are none.
TEST(LaneRun, NoticesALossThatIsNoNumberBeforeTheOptimizer) {
  Step step = tiny::make_step({{1, 2}, 1, true, "1f1b", tiny::FrozenPattern::kLlm});
  make_text_only(step, 4);
  ExecutorOptions options = tiny::seeded_options();
  Lane good(step, options);
  const StepOutcome number = good.run();
  EXPECT_GT(number.loss_sum, 0);
  EXPECT_EQ(number.gradient_norm, 0);
  EXPECT_TRUE(number.finite);
  RankDrill drill({.step = 5, .kind = FaultKind::kNan}, {});
  Lane bad(step, options);
  bad.compute = drill.around(std::move(bad.compute));
  const auto never = [] { FAIL() << "an optimizer step behind a loss that is no number"; };
  const StepOutcome none = bad.run(never);
  EXPECT_TRUE(std::isnan(none.loss_sum));
  EXPECT_EQ(none.gradient_norm, 0);
  EXPECT_FALSE(none.finite);
}

TEST(LaneRun, FaultDrillFailsInTheMiddleOfItsStepAlone) {
  const Step step = one_lane_step();
  RankDrill drill({.step = 5}, {});
  Lane lane(step);
  lane.compute = drill.around(std::move(lane.compute));
  LaneRun run(lane.context, *lane.compute, lane.inputs, RunMode::kTrain);
  const std::string message = error_of<std::runtime_error>([&] { run.run({}); });
  EXPECT_NE(message.find("fault drill"), std::string::npos) << message;
  const auto& operations = step.program.replicas[0].lanes[0];
  EXPECT_NE(run.where().find(to_string(step.program, operations[operations.size() / 2])),
            std::string::npos)
      << run.where();
  EXPECT_NO_THROW(lane.run({}, RunMode::kEvaluate));
  lane.inputs.step = 6;
  EXPECT_NO_THROW(lane.run());
}

}  // namespace
}  // namespace entrain::engine
