// Runs that meet faults: samples that cannot be read, losses that are no numbers, ranks that fail.
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/doctor.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/faulty_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::damage;
using tiny::Rows;
using tiny::rows_of;
using tiny::run_without;
using tiny::RunFolder;
using tiny::Steps;
using tiny::steps_with;
using tiny::train_now;

void expect_losses(const Rows& rows, const Rows& expected, const Steps& skipped) {
  EXPECT_EQ(rows.losses, expected.losses);
  EXPECT_EQ(rows.norms, expected.norms);
  for (const std::int64_t step : skipped) {
    EXPECT_TRUE(rows.skipped.contains(step)) << "step " << step;
  }
  EXPECT_EQ(rows.skipped.size(), skipped.size());
}

class Faults : public testing::Test {
 protected:
  Faults() {
    run_.config.steps = 6;
    run_.config.plan.replicas = 2;
    run_.config.data.validation.clear();
    run_.config.faults.on_bad_sample = kSkipStep;
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
  damage(run_.config, "train/s4");
  const std::string message = error_of<InvalidInput>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("sample 'train/s4' in '"), std::string::npos) << message;
  EXPECT_NE(message.find("train-000000.tar"), std::string::npos) << message;
}

TEST_F(Faults, ABadSampleSkipsItsStepsOnAllRanksAndNothingElse) {
  const Steps bad = steps_with(run_.config, "train/s4");
  ASSERT_GE(bad.size(), 2U);
  ASSERT_LT(bad.size(), 6U);
  const Rows expected = run_without(run_.config, bad);
  damage(run_.config, "train/s4");
  run_.config.checkpoint.resume = kResumeNever;
  for (const std::int64_t memory : {1, 256}) {  // MiB: room for the step ahead, or for hardly any
    run_.config.data.read_ahead_mib = memory;
    const std::string shown = shown_by(run_.config);
    const Rows rows = rows_of(run_.config);
    expect_losses(rows, expected, bad);
    std::int64_t count = 0;
    for (const auto& [step, row] : rows.skipped) {
      EXPECT_EQ(row["skipped"], "bad-sample");
      EXPECT_EQ(row["skipped_steps"], ++count);
      EXPECT_NE(row["detail"].get<std::string>().find("'train/s4' in '"), std::string::npos);
      EXPECT_NE(shown.find(concat("step ", step, " skipped, no update was made (bad-sample)")),
                std::string::npos)
          << shown;
    }
    EXPECT_EQ(result_.steps, 6);
    EXPECT_EQ(result_.skipped, static_cast<std::int64_t>(bad.size()));
  }
}

TEST_F(Faults, ARunResumesExactlyAcrossSkippedSteps) {
  damage(run_.config, "train/s4");
  const Steps bad = steps_with(run_.config, "train/s4");
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
    EXPECT_EQ(tiny::weights_of(config), tiny::weights_of(whole));
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
  const Rows expected = run_without(run_.config, {2});
  run_.config.faults.on_nan = kSkipStep;
  run_.config.execution.fault_kind = "nan";
  run_.config.checkpoint.resume = kResumeNever;
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
    return diagnose(read_dumps(find_dumps(run_.config.output)));
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
  EXPECT_FALSE(std::filesystem::exists(dump_path(run_.config.output, 0)));
  // Those of the failure before stay to be read.
  EXPECT_EQ(failures_in(run_.config.output), std::vector<std::int64_t>{1});
  EXPECT_EQ(diagnose(read_dumps(find_dumps(run_.config.output))).culprits, std::vector<int>{2});
}

}  // namespace
}  // namespace entrain::engine
