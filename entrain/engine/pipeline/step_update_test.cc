#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/oracle/engine/forwarding_comm.h"
#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using tiny::Step;

// Two replicas of these lanes; every stage's reduction takes 8 ms.
Step sharded_step(const char* schedule, std::vector<std::vector<StageRef>> lanes) {
  Step step = tiny::make_step({{1, 2}, 2, false, schedule});
  step.plan.lanes = std::move(lanes);
  step.plan.shard_optimizer = true;
  step.costs = step_costs(step.model,
                          step.plan,
                          analytic_profile(step.model, device_model("cpu-2core")),
                          step.costs.work);
  for (ModuleCosts& module : step.costs.modules) {
    for (StageCosts& stage : module.stages) {
      stage.reduce = milliseconds{8};
    }
  }
  Rng rng(4);
  step.program = build_program(
      step.plan, oracle::random_assignment(rng, step.costs, step.plan, 1, 5), step.costs, schedule);
  return step;
}

// A vision lane and a lane with two LLM stages.
Step sharded_step(const char* schedule) {
  return sharded_step(schedule, {{{0, 0}}, {{1, 0}, {1, 1}}});
}

ExecutorOptions paced_options() {
  ExecutorOptions options = tiny::seeded_options();
  options.paced = true;
  options.record_events = true;
  return options;
}

const std::vector<Operation>& operations_of(const Step& step, int replica, int lane) {
  return step.program.replicas[static_cast<std::size_t>(replica)]
      .lanes[static_cast<std::size_t>(lane)];
}

// Events of one lane at its reduce_gradients, but waiting; and when each of the lane's stages last
// ran an operation with weight gradients.
struct UpdateEvents {
  std::vector<TimelineEvent> reduction;
  std::map<std::pair<int, int>, TimelineEvent> last;  // by module and stage
};

UpdateEvents end_of(const Step& step, const StepOutcome& outcome, int replica, int lane) {
  UpdateEvents end;
  for (const TimelineEvent& event : outcome.events) {
    const Operation& operation =
        operations_of(step, replica, lane)[static_cast<std::size_t>(event.operation)];
    if (event.category == EventCategory::kWait) {
      continue;
    }
    if (operation.kind == OperationKind::kReduceGradients) {
      end.reduction.push_back(event);
    } else if (operation.kind == OperationKind::kBackward ||
               operation.kind == OperationKind::kBackwardWeight) {
      end.last[{operation.unit.module, operation.unit.stage}] = event;
    }
  }
  return end;
}

// Of every rank of a paced run.
std::vector<UpdateEvents> paced_ends(const Step& step) {
  const tiny::Result result = tiny::run_step(step, paced_options(), [](int) { return nullptr; });
  const RankPlaces places(step.plan);
  std::vector<UpdateEvents> ends;
  for (int rank = 0; rank < places.num_ranks(); ++rank) {
    const RankPlace place = places.place_of(rank);
    ends.push_back(
        end_of(step, result.outcomes[static_cast<std::size_t>(rank)], place.replica, place.lane));
    EXPECT_EQ(ends.back().last.size(),
              step.plan.lanes[static_cast<std::size_t>(place.lane)].size());
  }
  return ends;
}

class StepUpdates : public testing::TestWithParam<const char*> {};

// zb-h1 ends a stage with a weight half, 1f1b with a whole backward.
TEST_P(StepUpdates, PacedBucketsRunOneAfterAnotherFromTheirStagesLastGradientsOn) {
  const Step step = sharded_step(GetParam());
  ASSERT_EQ(step.costs.reduce_buckets, kReduceBuckets);
  for (const UpdateEvents& end : paced_ends(step)) {
    const std::size_t num_stages = end.last.size();
    ASSERT_EQ(end.reduction.size(), num_stages * kReduceBuckets);
    nanoseconds before{0};
    nanoseconds in_all{0};
    for (const TimelineEvent& bucket : end.reduction) {
      EXPECT_EQ(bucket.category, EventCategory::kSend);
      EXPECT_GE(bucket.start, before);
      before = bucket.finish;
      in_all += bucket.finish - bucket.start;
    }
    EXPECT_EQ(in_all, num_stages * milliseconds{8});
    // The first bucket is of the lane's last stage.
    EXPECT_GT(end.reduction.front().start, end.last.rbegin()->second.start);
    // The last one of its first stage, whose earliest parameter is added to at the very end.
    EXPECT_GE(end.reduction.back().start, end.last.begin()->second.finish);
  }
}

TEST_P(StepUpdates, PacedReductionsAfterTheBackwardAreOneWait) {
  Step step = sharded_step(GetParam());
  step.costs.reduce_buckets = 0;
  for (const UpdateEvents& end : paced_ends(step)) {
    ASSERT_EQ(end.reduction.size(), 1U);
    EXPECT_EQ(end.reduction.front().category, EventCategory::kCompute);
    EXPECT_GE(end.reduction.front().finish - end.reduction.front().start,
              end.last.size() * milliseconds{8});
    EXPECT_GE(end.reduction.front().start, end.last.begin()->second.finish);
  }
}

// Sends what a tensor holds at that moment, as a network may; threads hand over its memory, where
// what is added later would arrive all the same.
class CopyingComm : public oracle::ForwardingComm {
 public:
  using ForwardingComm::ForwardingComm;
  void send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) override {
    ForwardingComm::send(channel, tag, tensor.clone());
  }
};

// Every shard's gradients and the norm, of real steps.
struct Sums {
  double norm = 0;
  std::map<std::pair<int, std::string>, at::Tensor> pieces;  // by rank and parameter
};

Sums run_sharded(const Step& step, bool overlap, bool in_two_parts) {
  ExecutorOptions options = tiny::seeded_options();
  options.overlap_reduction = overlap;
  const RankPlaces places(step.plan);
  ThreadCommGroup group(places.num_ranks());
  std::mutex mutex;
  Sums sums;
  run_ranks(group, [&](int rank) {
    CopyingComm comm(group.comm(rank));
    Executor executor(step.model, step.plan, comm, options);
    tiny::SyntheticData data(step.costs.work);
    StepInputs inputs = tiny::inputs_of(step, &data);
    if (in_two_parts) {
      inputs.ends_update = false;
      executor.run(inputs, {});
      inputs.begins_update = false;
      inputs.ends_update = true;
    }
    const StepOutcome outcome = executor.run(inputs, {});
    const std::lock_guard lock(mutex);
    sums.norm = outcome.gradient_norm;
    for (const TrainedPiece& piece : executor.trained()) {
      sums.pieces[{rank, concat(piece.name, " ", piece.begin)}] = piece.gradient.clone();
    }
  });
  return sums;
}

void expect_overlap_changes_no_bit(const Step& step) {
  for (const bool in_two_parts : {false, true}) {
    const Sums overlapped = run_sharded(step, true, in_two_parts);
    const Sums behind = run_sharded(step, false, in_two_parts);
    EXPECT_EQ(overlapped.norm, behind.norm);
    EXPECT_GT(overlapped.norm, 0);
    ASSERT_EQ(overlapped.pieces.size(), behind.pieces.size());
    for (const auto& [name, gradient] : overlapped.pieces) {
      EXPECT_TRUE(at::equal(gradient, behind.pieces.at(name))) << name.second;
    }
  }
}

TEST_P(StepUpdates, OverlapChangesNoBit) {
  expect_overlap_changes_no_bit(sharded_step(GetParam()));
}

// A table that a lane's other stage, or another lane, adds to.
TEST_P(StepUpdates, OverlapChangesNoBitOfTiedTables) {
  for (const std::vector<std::vector<StageRef>>& lanes :
       {std::vector<std::vector<StageRef>>{{{0, 0}}, {{1, 0}, {1, 1}}},
        std::vector<std::vector<StageRef>>{{{0, 0}}, {{1, 0}}, {{1, 1}}}}) {
    Step step = sharded_step(GetParam(), lanes);
    step.model.llm.tie_word_embeddings = true;
    expect_overlap_changes_no_bit(step);
  }
}

// Parameters that lie on both ranks of the lane, which add up their gradients.
TEST_P(StepUpdates, OverlapChangesNoBitOfLanesOfSeveralRanks) {
  Step step = sharded_step(GetParam());
  step.model.llm.num_kv_heads = 2;
  step.plan.modules[1].tensor_parallel = 2;
  expect_overlap_changes_no_bit(step);
}

// Twice the same batch is twice its gradient.
TEST_P(StepUpdates, AStepThatEndsNoUpdateReducesNothing) {
  const Step step = sharded_step(GetParam());
  const Sums once = run_sharded(step, true, false);
  const Sums twice = run_sharded(step, true, true);
  EXPECT_NEAR(twice.norm, 2 * once.norm, 1e-5 * once.norm);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, StepUpdates, testing::Values("1f1b", "zb-h1"), [](const auto& schedule) {
      return std::string(schedule.param) == "1f1b" ? "WholeBackwards" : "BackwardsInHalves";
    });

}  // namespace
}  // namespace entrain::engine
