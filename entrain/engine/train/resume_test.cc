#include "entrain/engine/train/resume.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::RunFolder;
using tiny::train_now;
namespace fs = std::filesystem;
using StepList = std::vector<std::int64_t>;

// What a run's rows say that does not depend on the clock.
struct Row {
  std::int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  bool validation = false;
  Json drift;
  bool operator==(const Row&) const = default;
};

std::vector<Row> metric_rows(const RunConfig& config) {
  std::vector<Row> rows;
  for (const Json& line : tiny::metrics_of(fs::path(config.output) / "metrics.jsonl")) {
    const bool validation = line.contains("validation_loss");
    rows.push_back({line["step"].get<std::int64_t>(),
                    line[validation ? "validation_loss" : "loss"].get<double>(),
                    line.value("grad_norm", 0.0),
                    line.value("learning_rate", 0.0),
                    validation,
                    line.value("drift", Json())});
  }
  return rows;
}

// To the last bit.
bool same_weights(const RunConfig& a, const RunConfig& b) {
  return tiny::weights_of(a) == tiny::weights_of(b);
}

class Resume : public testing::Test {
 protected:
  Resume() {
    run_.config.steps = 8;
    run_.config.validation.every = 2;
    run_.config.checkpoint.every_steps = 3;
  }

  // The same run without a stop, in a folder of its own.
  RunConfig whole_run() {
    RunConfig config = run_.config;
    config.output += "-whole";
    train_now(config);
    return config;
  }
  // A run that fails in step 5; its last checkpoint is of step 3.
  void break_off() {
    RunConfig config = run_.config;
    config.execution.fault_drill = {0, 0, 5};
    error_of<InternalError>([&] { train_now(config); });
    ASSERT_EQ(checkpoint_steps(checkpoints()), StepList{3});
  }
  // A run that fails in step 7, with a checkpoint of step 3 and a damaged one of step 6.
  void break_off_with_damage() {
    RunConfig config = run_.config;
    config.execution.fault_drill = {0, 0, 7};
    error_of<InternalError>([&] { train_now(config); });
    ASSERT_EQ(checkpoint_steps(checkpoints()), (StepList{3, 6}));
    const fs::path damaged =
        checkpoints() / checkpoint_name(6) / "optimizer-lane-00001.safetensors";
    fs::resize_file(damaged, fs::file_size(damaged) - 1);
  }
  [[nodiscard]] fs::path checkpoints() const { return checkpoint_folder(run_.config); }
  [[nodiscard]] std::string refusal() const {
    return error_of<InvalidInput>([&] { prepare_run(run_.config); });
  }

  RunFolder run_;
};

// The last lane's copy of the table is neither written nor read: it follows the first lane's.
TEST_F(Resume, OfTiedEmbeddingsOnTwoLanes) {
  const std::string model = read_file(run_.path("model.toml"));
  run_.write("model.toml", model + "tie_word_embeddings = true\n");
  run_.config.plan.stages = {{"llm", 2}};
  const RunConfig whole = whole_run();
  break_off();
  train_now(run_.config);
  EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
  EXPECT_TRUE(same_weights(run_.config, whole));
  const std::string weights = tiny::weights_of(whole);
  EXPECT_NE(weights.find("model.embed_tokens.weight"), std::string::npos);
  EXPECT_EQ(weights.find("lm_head.weight"), std::string::npos);
  // One lane has the same losses: both uses of the table train it.
  RunConfig one = run_.config;
  one.output += "-one";
  one.plan.stages = {{"llm", 1}};
  train_now(one);
  const std::vector<Row> expected = metric_rows(one);
  const std::vector<Row> rows = metric_rows(whole);
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].loss, expected[i].loss, 1e-5) << i;
    EXPECT_NEAR(rows[i].gradient_norm, expected[i].gradient_norm, 1e-4) << i;
  }
}

TEST_F(Resume, IsTheRunThatWasNeverStopped) {
  const Profile profile = analytic_profile(run_model(run_.config), device_model("cpu-2core"));
  run_.config.plan.profile = run_.write("profile.json", to_json(profile).dump()).string();
  run_.config.plan.stages = {{"llm", 2}};
  for (const int replicas : {1, 2}) {
    run_.config.plan.replicas = replicas;
    run_.config.output = run_.path(concat("run", replicas)).string();
    const RunConfig whole = whole_run();
    break_off();
    const RunSetup setup = prepare_run(run_.config);
    EXPECT_EQ(setup.resume->manifest.step, 3);
    EXPECT_TRUE(setup.resume->notes.empty()) << join(setup.resume->notes);
    const TrainResult result = train_now(run_.config);
    EXPECT_EQ(result.first_step, 3);
    EXPECT_EQ(result.steps, 5);
    EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
    EXPECT_EQ(metric_rows(whole).back().drift, Json());  // of the validation
    EXPECT_TRUE(metric_rows(whole)[0].drift.contains("lane_shares"));
    EXPECT_TRUE(same_weights(run_.config, whole));
    EXPECT_EQ(checkpoint_steps(checkpoints()), (StepList{6, 8}));
    EXPECT_EQ(result.checkpoint, checkpoints() / checkpoint_name(8));
  }
}

// Stopped again and again after a step or two, without periodic checkpoints.
TEST_F(Resume, GoesOnAfterEverySignal) {
  run_.config.data.validation.clear();  // a signal that is always there would end each
  const RunConfig whole = whole_run();
  run_.config.checkpoint.every_steps = 0;
  int calls = 0;
  std::int64_t reached = 0;
  while (reached < run_.config.steps) {
    const TrainResult result = train_now(run_.config, /*interrupt=*/true);
    EXPECT_EQ(result.first_step, reached);
    ASSERT_GE(result.steps, 1);
    reached += result.steps;
    EXPECT_EQ(result.interrupted, reached < run_.config.steps);
    if (result.interrupted) {
      EXPECT_EQ(read_latest(checkpoints())->step, reached);
    }
    ++calls;
  }
  EXPECT_GE(calls, 4);
  EXPECT_EQ(read_latest(checkpoints())->step, run_.config.steps);
  EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
  EXPECT_TRUE(same_weights(run_.config, whole));
}

TEST_F(Resume, GoesOnUnderAnyOtherPlan) {
  const std::vector<Row> whole = metric_rows(whole_run());
  break_off();
  const RunSetup before = prepare_run(run_.config);
  const auto resume_under = [&](const std::function<void(PlanConfig&)>& change) {
    RunConfig config = run_.config;
    config.output = run_.path("other").string();
    config.checkpoint.resume = (checkpoints() / checkpoint_name(3)).string();
    change(config.plan);
    const RunSetup setup = prepare_run(config);
    for (const std::int64_t step : {3, 7}) {
      EXPECT_EQ(prepare_step(setup, step).sample_ids, prepare_step(before, step).sample_ids);
    }
    train_now(config);
    const std::vector<Row> rows = metric_rows(config);
    ASSERT_EQ(rows.size(), 8U);  // five steps, three validations: of steps 4, 6 and 8
    std::size_t i = whole.size() - rows.size();
    for (const Row& row : rows) {
      EXPECT_EQ(row.step, whole[i].step);
      EXPECT_EQ(row.validation, whole[i].validation);
      EXPECT_NEAR(row.loss, whole[i++].loss, 1e-5) << row.step;
    }
  };
  resume_under([](PlanConfig& plan) { plan.replicas = 2; });
  resume_under([](PlanConfig& plan) { plan.stages = {{"vision", 2}, {"llm", 3}}; });
  resume_under([](PlanConfig& plan) { plan.single_lane = true; });
  resume_under([](PlanConfig& plan) {
    plan.replicas = 2;
    plan.stages = {{"llm", 2}};
    plan.policy = "sequential";
    plan.schedule = "gpipe";
  });
}

TEST_F(Resume, RefusesAnotherRunAndNamesBothValues) {
  break_off();
  const RunConfig good = run_.config;
  const auto expect_refusal = [&](const std::vector<std::string>& parts) {
    const std::string message = refusal();
    EXPECT_NE(message.find("step-00000003"), std::string::npos) << message;
    EXPECT_NE(message.find("checkpoint.resume"), std::string::npos) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    run_.config = good;
  };
  run_.config.seed = 4;
  expect_refusal({"seed 3 there, 4 here"});
  run_.config.data.global_batch = 5;
  expect_refusal({"data.global_batch 6 there, 5 here"});
  run_.config.data.hold = 2;
  expect_refusal({"data.hold 1 there, 2 here"});
  run_.config.data.train = run_.make_index("others", tiny::colour_shard(40, 12));
  expect_refusal({"data.train", "train.csv", "others.csv"});
  run_.config.freeze = {"vision"};
  expect_refusal({"model \"", "freeze []", "freeze [\"vision\"]"});
  run_.config.steps = 2;
  EXPECT_NE(refusal().find("is of step 3, the run has steps = 2"), std::string::npos);
}

TEST_F(Resume, RefusesOtherSettingsUnlessTheyAreAccepted) {
  break_off();
  run_.config.optimizer.learning_rate = 2e-3;
  run_.config.seed = 4;
  const std::string message = refusal();
  EXPECT_NE(message.find("optimizer.learning_rate 0.005 there, 0.002 here"), std::string::npos)
      << message;
  EXPECT_NE(message.find("--resume"), std::string::npos) << message;
  EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
  run_.config.checkpoint.resume = kResumeAccept;
  const std::string notes = join(prepare_run(run_.config).resume->notes);
  EXPECT_NE(notes.find("accepted: optimizer.learning_rate 0.005 there"), std::string::npos);
  EXPECT_NE(notes.find("accepted: seed 3 there, 4 here"), std::string::npos);
  run_.config.freeze = {"vision"};  // its moments would be missing
  EXPECT_NE(refusal().find("model \""), std::string::npos);
}

TEST_F(Resume, NotesWhatChanged) {
  break_off();
  run_.config.steps = 9;
  run_.config.plan.replicas = 2;
  const std::string notes = join(prepare_run(run_.config).resume->notes);
  EXPECT_NE(notes.find("steps was 8 when the checkpoint was written, is 9"), std::string::npos)
      << notes;
  EXPECT_NE(notes.find("the plan differs"), std::string::npos) << notes;
}

TEST_F(Resume, FallsBackFromADamagedCheckpointAndWarns) {
  const RunConfig whole = whole_run();
  break_off_with_damage();
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_EQ(setup.resume->manifest.step, 3);
  const std::string warnings = join(setup.warnings);
  EXPECT_NE(warnings.find("optimizer-lane-00001.safetensors"), std::string::npos) << warnings;
  train_now(run_.config);
  EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
  EXPECT_TRUE(verify_checkpoint(checkpoints() / checkpoint_name(6)).ok());
  for (const std::int64_t step : checkpoint_steps(checkpoints())) {
    fs::remove(checkpoints() / checkpoint_name(step) / kManifestName);
  }
  const std::string none = error_of<SystemFailure>([&] { prepare_run(run_.config); });
  EXPECT_NE(none.find("no usable checkpoint"), std::string::npos) << none;
}

TEST_F(Resume, ADamagedCheckpointIsNotAmongThoseKept) {
  break_off_with_damage();
  run_.config.checkpoint.every_steps = 0;
  train_now(run_.config);
  EXPECT_EQ(checkpoint_steps(checkpoints()), (StepList{3, 8}));
  EXPECT_TRUE(fs::exists(checkpoints() / concat("damaged-", checkpoint_name(6), "-1")));
}

TEST_F(Resume, StartsAgainWhenRequestedAndSetsEarlierCheckpointsAside) {
  break_off();
  const RunConfig whole = whole_run();
  run_.config.checkpoint.resume = "never";
  EXPECT_EQ(train_now(run_.config).first_step, 0);
  EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
  EXPECT_EQ(checkpoint_steps(checkpoints()), (StepList{6, 8}));
  EXPECT_EQ(checkpoint_steps(run_.output("earlier-1/checkpoints")), StepList{3});
  EXPECT_TRUE(fs::exists(run_.output("earlier-1/metrics.jsonl")));
}

// A folder for checkpoints outside the run folder is moved beside itself.
TEST_F(Resume, SetsCheckpointsOfAFolderOfTheirOwnAside) {
  run_.config.checkpoint.folder = run_.path("elsewhere").string();
  break_off();
  run_.config.checkpoint.resume = kResumeNever;
  run_.config.output = run_.path("other").string();
  train_now(run_.config);
  EXPECT_EQ(checkpoint_steps(run_.path("elsewhere.earlier-1")), StepList{3});
  EXPECT_EQ(checkpoint_steps(run_.path("elsewhere")), (StepList{6, 8}));
}

// The file of the run's last step is the mark of its end: a run that was killed before it was
// written has something left to do.
TEST_F(Resume, WritesMissingOrOlderWeightsOfAFinishedRun) {
  train_now(run_.config);
  const std::string weights = tiny::weights_of(run_.config);
  const std::vector<Row> rows = metric_rows(run_.config);
  fs::remove(run_.output("weights.safetensors"));
  EXPECT_FALSE(prepare_run(run_.config).resume->finished);
  train_now(run_.config);
  EXPECT_TRUE(tiny::weights_of(run_.config) == weights);
  EXPECT_EQ(metric_rows(run_.config), rows);
  EXPECT_TRUE(prepare_run(run_.config).resume->finished);
  run_.config.steps = 9;
  EXPECT_FALSE(prepare_run(run_.config).resume->finished);
}

TEST_F(Resume, EndsAValidationThatASignalInterrupts) {
  const RunConfig whole = whole_run();
  RunConfig config = run_.config;
  config.execution.fault_drill = {0, 0, 7};
  error_of<InternalError>([&] { train_now(config); });  // behind step 6, whose validation is due
  const TrainResult result = train_now(run_.config, /*interrupt=*/true);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps, 0);
  EXPECT_FALSE(result.validation_loss.has_value());
  train_now(run_.config);
  EXPECT_EQ(metric_rows(run_.config), metric_rows(whole));
}

TEST_F(Resume, WritesCheckpointsByTheClockAndOneAtTheEnd) {
  run_.config.checkpoint = {};
  run_.config.checkpoint.every_minutes = 1e-9;  // has always passed
  run_.config.checkpoint.keep = 20;
  train_now(run_.config);
  EXPECT_EQ(checkpoint_steps(checkpoints()), (StepList{1, 2, 3, 4, 5, 6, 7, 8}));
  run_.config.output += "-rare";
  run_.config.checkpoint.every_minutes = 15;
  train_now(run_.config);
  EXPECT_EQ(checkpoint_steps(checkpoints()), StepList{8});
}

// Between two updates there is nothing to continue from.
TEST_F(Resume, WritesCheckpointsByTheClockOnlyAfterUpdates) {
  run_.config.checkpoint = {};
  run_.config.checkpoint.every_minutes = 1e-9;
  run_.config.checkpoint.keep = 20;
  run_.config.optimizer.update_every = 4;
  train_now(run_.config);
  EXPECT_EQ(checkpoint_steps(checkpoints()), (StepList{4, 8}));
}

TEST_F(Resume, GoesBackToTheGivenCheckpoint) {
  const std::vector<Row> whole = metric_rows(whole_run());
  train_now(run_.config);
  run_.config.checkpoint.resume = (checkpoints() / checkpoint_name(6)).string();
  run_.config.checkpoint.every_steps = 1;
  const TrainResult result = train_now(run_.config, /*interrupt=*/true);
  EXPECT_EQ(result.first_step, 6);
  run_.config.checkpoint.resume = "auto";
  train_now(run_.config);
  EXPECT_EQ(metric_rows(run_.config), whole);
}

TEST_F(Resume, HasNothingLeftToTrainAtTheEnd) {
  const TrainResult first = train_now(run_.config);
  const std::vector<Row> rows = metric_rows(run_.config);
  const std::string weights = tiny::weights_of(run_.config);
  const TrainResult again = train_now(run_.config);
  EXPECT_EQ(again.steps, 0);
  EXPECT_FALSE(again.interrupted);
  EXPECT_TRUE(first.validation_loss.has_value());
  EXPECT_EQ(metric_rows(run_.config), rows);
  EXPECT_TRUE(tiny::weights_of(run_.config) == weights);
  EXPECT_TRUE(again.checkpoint.empty());
}

// The first update throws the weights far out; the loss of the next step is no number.
TEST_F(Resume, NeverKeepsAStepWhoseLossIsNoNumber) {
  run_.config.checkpoint.every_steps = 1;
  run_.config.optimizer.learning_rate = std::numeric_limits<float>::max();
  run_.config.optimizer.warmup_steps = 0;
  error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_EQ(checkpoint_steps(checkpoints()), StepList{1});
}

TEST_F(Resume, RefusesAFolderThatCannotBeMadeBeforeTheFirstStep) {
  run_.config.checkpoint.folder = (run_.write("file", "in the way") / "folder").string();
  const std::string message = error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("file/folder"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(run_.output("metrics.jsonl")));
}

TEST_F(Resume, StillWritesWeightsWhenTheLastCheckpointFails) {
  run_.config.checkpoint.every_steps = 0;
  run_.config.checkpoint.resume = kResumeNever;
  fs::create_directories(checkpoints() / kLatestName / "in the way");
  error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_TRUE(fs::exists(run_.output("weights.safetensors")));
}

TEST_F(Resume, PacedRunsWriteAndReadNoCheckpoints) {
  break_off();
  run_.config.execution.paced = true;
  EXPECT_NE(refusal().find("holds the checkpoints of a run"), std::string::npos);
  run_.config.output += "-paced";
  EXPECT_FALSE(prepare_run(run_.config).resume.has_value());
  EXPECT_EQ(train_now(run_.config).steps, 8);
  EXPECT_EQ(checkpoint_steps(checkpoints()), StepList{});
  EXPECT_NE(refusal().find("a paced run that has ended"), std::string::npos);
}

}  // namespace
}  // namespace entrain::engine
