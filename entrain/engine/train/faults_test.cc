// Runs that meet faults: samples that cannot be read, losses that are no numbers, ranks that fail.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/doctor.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::RunFolder;
using Steps = std::set<std::int64_t>;

TrainResult train_now(const RunConfig& config) {
  const std::atomic<bool> interrupted{false};
  return train(prepare_run(config), interrupted);
}

// Losses of a loop written out for itself, with the setup's ranks, that leaves out the updates of
// some steps. Bitwise what train() computes, if it is right.
std::vector<double> losses_without_updates(const RunConfig& config, const Steps& left_out) {
  const RunSetup setup = prepare_run(config);
  const int lanes = setup.plan.num_lanes();
  ThreadCommGroup group(setup.plan.replicas * lanes);
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(group.size()));
  std::vector<PreparedStep> steps;
  for (std::int64_t step = 0; step < config.steps; ++step) {
    steps.push_back(prepare_step(setup, step));
  }
  run_ranks(group, [&](int rank) {
    ExecutorOptions options;
    options.stage.seed = config.seed;
    options.clip_norm = config.optimizer.clip_norm;
    Executor executor(
        setup.model, setup.plan, rank / lanes, rank % lanes, group.comm(rank), options);
    AdamW optimizer(executor.trained(), executor.layout().shard_size(), config.optimizer);
    ReadAhead reader(setup.train.index, setup.model, {});
    for (const PreparedStep& step : steps) {
      const auto data =
          reader.queue(needs_of(step.program, rank / lanes, rank % lanes, step.batch));
      StepInputs inputs;
      inputs.program = &step.program;
      inputs.costs = &step.costs;
      inputs.sample_ids = &step.sample_ids;
      inputs.step = step.step;
      inputs.target_tokens = step.target_tokens;
      inputs.data = data.get();
      inputs.start = std::chrono::steady_clock::now();
      const StepOutcome outcome = executor.run(inputs, [&] {
        if (!left_out.contains(step.step)) {
          optimizer.step(step.step, config.steps);
        }
      });
      sums[static_cast<std::size_t>(rank)].push_back(outcome.loss_sum);
    }
  });
  std::vector<double> losses;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    double sum = 0;
    for (const std::vector<double>& of_rank : sums) {
      sum += of_rank[s];
    }
    losses.push_back(sum / static_cast<double>(steps[s].target_tokens));
  }
  return losses;
}

// The rows of steps that were skipped, and the losses of the others by step.
struct Rows {
  std::map<std::int64_t, Json> skipped;
  std::map<std::int64_t, double> losses;
};
Rows rows_of(const RunConfig& config) {
  Rows rows;
  for (const Json& row : tiny::metrics_of(std::filesystem::path(config.output) / "metrics.jsonl")) {
    const auto step = row["step"].get<std::int64_t>();
    if (row.contains("skipped")) {
      rows.skipped[step] = row;
    } else if (row.contains("loss")) {
      rows.losses[step] = row["loss"].get<double>();
    }
  }
  return rows;
}

void expect_losses(const Rows& rows, const std::vector<double>& expected, const Steps& skipped) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const auto key = static_cast<std::int64_t>(step);
    EXPECT_EQ(rows.skipped.contains(key), skipped.contains(key)) << "step " << step;
    if (!skipped.contains(key)) {
      ASSERT_TRUE(rows.losses.contains(key)) << "step " << step;
      EXPECT_EQ(rows.losses.at(key), expected[step]) << "step " << step;
    }
  }
}

class Faults : public testing::Test {
 protected:
  Faults() {
    run_.config.steps = 6;
    run_.config.plan.replicas = 2;
    run_.config.data.validation.clear();
    run_.config.faults.on_bad_sample = kSkipStep;
  }

  // Overwrites pixels of the sample's first image.
  void damage(const std::string& id) {
    const Index index = read_index(run_.config.data.train);
    for (const SampleSizes& sample : index.samples) {
      if (sample.id == id) {
        std::fstream shard(shard_path(index, *sample.location),
                           std::ios::in | std::ios::out | std::ios::binary);
        shard.seekp(sample.location->offset + 512 + 45);
        shard << "not pixels";
        ASSERT_TRUE(shard.good());
      }
    }
  }
  [[nodiscard]] Steps steps_with(const std::string& id) const {
    const RunSetup setup = prepare_run(run_.config);
    Steps steps;
    for (std::int64_t step = 0; step < run_.config.steps; ++step) {
      const PreparedStep prepared = prepare_step(setup, step);
      if (std::ranges::count(prepared.sample_ids, id) > 0) {
        steps.insert(step);
      }
    }
    return steps;
  }
  std::string shown_by(const RunConfig& config) {
    testing::internal::CaptureStderr();
    result_ = train_now(config);
    return testing::internal::GetCapturedStderr();
  }

  RunFolder run_;
  TrainResult result_;
};

TEST_F(Faults, ABadSampleStopsTheRunByItsName) {
  run_.config.faults.on_bad_sample = "stop";
  damage("train/s4");
  const std::string message = error_of<InvalidInput>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("sample 'train/s4' in shard"), std::string::npos) << message;
  EXPECT_NE(message.find("train-000000.tar"), std::string::npos) << message;
}

TEST_F(Faults, ABadSampleSkipsItsStepsOnAllRanksAndNothingElse) {
  const Steps bad = steps_with("train/s4");
  ASSERT_GE(bad.size(), 2U);
  ASSERT_LT(bad.size(), 6U);
  const std::vector<double> expected = losses_without_updates(run_.config, bad);
  damage("train/s4");
  for (const std::int64_t memory : {1, 256}) {  // MiB: room for the step ahead, or for hardly any
    run_.config.data.read_ahead_mib = memory;
    const std::string shown = shown_by(run_.config);
    const Rows rows = rows_of(run_.config);
    expect_losses(rows, expected, bad);
    std::int64_t count = 0;
    for (const auto& [step, row] : rows.skipped) {
      EXPECT_EQ(row["skipped"], "bad-sample");
      EXPECT_EQ(row["skipped_steps"], ++count);
      EXPECT_NE(row["detail"].get<std::string>().find("'train/s4' in shard"), std::string::npos);
      EXPECT_NE(shown.find(concat("step ", step, " skipped, no update was made (bad-sample)")),
                std::string::npos)
          << shown;
    }
    EXPECT_EQ(result_.steps, 6);
    EXPECT_EQ(result_.skipped, static_cast<std::int64_t>(bad.size()));
  }
}

TEST_F(Faults, ARunResumesExactlyAcrossSkippedSteps) {
  damage("train/s4");
  const Steps bad = steps_with("train/s4");
  RunConfig whole = run_.config;
  whole.output += "-whole";
  whole.checkpoint.every_steps = 1;
  train_now(whole);
  for (std::int64_t stop = *bad.begin() + 1; stop < 6; ++stop) {
    RunConfig config = run_.config;
    config.output += concat("-", stop);
    config.checkpoint.every_steps = 1;
    config.execution.fault_drill = {1, 0, static_cast<int>(stop)};
    if (bad.contains(stop)) {
      continue;  // a skipped step runs no operation that could fail
    }
    error_of<InternalError>([&] { train_now(config); });
    config.execution.fault_drill.clear();
    const TrainResult resumed = train_now(config);
    EXPECT_GT(resumed.first_step, 0);
    EXPECT_EQ(rows_of(config).losses, rows_of(whole).losses) << "stopped in step " << stop;
    EXPECT_EQ(rows_of(config).skipped, rows_of(whole).skipped);
    EXPECT_EQ(read_file(std::filesystem::path(config.output) / "weights.safetensors"),
              read_file(std::filesystem::path(whole.output) / "weights.safetensors"));
  }
}

TEST_F(Faults, TooManySkippedStepsInARowStopTheRun) {
  run_.config.faults.max_skips_in_a_row = 2;
  std::filesystem::remove(run_.path("train-000000.tar"));
  const std::string message = error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("step 2: 3 steps in a row were skipped"), std::string::npos) << message;
  EXPECT_NE(message.find("train-000000.tar"), std::string::npos) << message;
  EXPECT_EQ(rows_of(run_.config).skipped.size(), 3U);
}

TEST_F(Faults, ALossThatIsNoNumberStopsTheRunBeforeItsUpdate) {
  run_.config.execution.fault_drill = {1, 0, 2};
  run_.config.execution.fault_kind = "nan";
  run_.config.checkpoint.every_steps = 1;
  const std::string message = error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("step 2: loss"), std::string::npos) << message;
  EXPECT_EQ(rows_of(run_.config).losses.size(), 2U);
}

TEST_F(Faults, ALossThatIsNoNumberSkipsItsStepOnAllRanks) {
  const std::vector<double> expected = losses_without_updates(run_.config, {2});
  run_.config.faults.on_nan = kSkipStep;
  run_.config.execution.fault_kind = "nan";
  for (const int lane : {0, 1}) {  // of the encoder, of the LLM
    run_.config.execution.fault_drill = {1, lane, 2};
    const std::string shown = shown_by(run_.config);
    const Rows rows = rows_of(run_.config);
    expect_losses(rows, expected, {2});
    EXPECT_EQ(rows.skipped.at(2)["skipped"], "nan");
    EXPECT_NE(rows.skipped.at(2)["detail"].get<std::string>().find("gradient norm"),
              std::string::npos);
    EXPECT_NE(shown.find("step 2 skipped"), std::string::npos) << shown;
  }
}

class Drills : public Faults {
 protected:
  Drills() { run_.config.execution.deadline_seconds = 2; }

  template <class Error>
  Diagnosis drill(const char* kind, const std::vector<int>& rank_and_step) {
    run_.config.execution.fault_kind = kind;
    run_.config.execution.fault_drill = rank_and_step;
    message_ = error_of<Error>([&] { train_now(run_.config); });
    return diagnose(read_dumps(run_.config.output));
  }

  std::string message_;
};

TEST_F(Drills, ARankThatThrowsIsNamed) {
  const Diagnosis diagnosis = drill<InternalError>("throw", {1, 0, 1});
  EXPECT_EQ(diagnosis.verdict, Verdict::kFailed) << to_text(diagnosis);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{2});
  EXPECT_NE(diagnosis.summary.find("rank 2 (replica 1 lane 0) failed first, in step 1, "),
            std::string::npos)
      << diagnosis.summary;
  EXPECT_NE(diagnosis.summary.find("fault drill"), std::string::npos) << diagnosis.summary;
}

TEST_F(Drills, ARankThatHangsIsNamed) {
  const Diagnosis diagnosis = drill<SystemFailure>("hang", {0, 1, 2});
  EXPECT_EQ(diagnosis.verdict, Verdict::kStuck) << to_text(diagnosis);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{1}) << to_text(diagnosis);
  EXPECT_NE(message_.find("within"), std::string::npos) << message_;
}

TEST_F(Drills, ARankThatDiesIsNamed) {
  const Diagnosis diagnosis = drill<SystemFailure>("die", {1, 1, 1});
  EXPECT_EQ(diagnosis.verdict, Verdict::kDied) << to_text(diagnosis);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{3}) << to_text(diagnosis);
  EXPECT_FALSE(std::filesystem::exists(dump_path(run_.config.output, 3)));
}

TEST_F(Drills, ARankThatSendsAWrongSizeIsNamed) {
  for (const int lane : {0, 1}) {
    const Diagnosis diagnosis = drill<InternalError>("wrong-size", {0, lane, 1});
    EXPECT_EQ(diagnosis.verdict, Verdict::kMismatch) << to_text(diagnosis);
    EXPECT_EQ(diagnosis.culprits, std::vector<int>{lane}) << to_text(diagnosis);
    EXPECT_NE(message_.find("the receive expects"), std::string::npos) << message_;
  }
}

TEST_F(Drills, ARunThatGoesWellLeavesNoDumps) {
  drill<InternalError>("throw", {1, 0, 1});
  run_.config.execution.fault_drill.clear();
  train_now(run_.config);
  EXPECT_THROW(read_dumps(run_.config.output), InvalidInput);
}

}  // namespace
}  // namespace entrain::engine
