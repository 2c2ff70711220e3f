#include "entrain/engine/train/run_state.h"

#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The books of a run that no rank has begun.
class RunBooks : public testing::Test {
 protected:
  RunBooks() {
    folder_.config.data.validation.clear();
    setup_ = prepare_run(folder_.config);
    open_folder(setup_);
    run_ = std::make_unique<engine::Run>(setup_, interrupted_, events_, nullptr);
    prepared_ = prepare_step(setup_, 0);
  }

  // Of step 0, as the meeting has it: the loss is still a sum.
  [[nodiscard]] StepRecord record(double loss, double norm) const {
    StepRecord record;
    record.loss = loss * static_cast<double>(prepared_.target_tokens);
    record.gradient_norm = norm;
    record.step_s = 1;
    record.measured = prepared_.predicted;
    record.processor_s.assign(record.measured.lanes.size(),
                              std::vector<double>(record.measured.lanes.front().size()));
    return record;
  }
  [[nodiscard]] Json last_row() const {
    return tiny::metrics_of(folder_.output("metrics.jsonl")).back();
  }

  tiny::RunFolder folder_;
  RunSetup setup_;
  std::atomic<bool> interrupted_{false};
  TrainEvents events_;
  std::unique_ptr<engine::Run> run_;
  PreparedStep prepared_;
};

TEST_F(RunBooks, ALossIsPerTargetTokenAndARateThatOfTheStep) {
  finish_step(*run_, prepared_, record(2.5, 3));
  EXPECT_DOUBLE_EQ(last_row()["loss"].get<double>(), 2.5);
  EXPECT_EQ(last_row()["grad_norm"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(last_row()["learning_rate"].get<double>(),
                   folder_.config.optimizer.learning_rate / 3);  // the first of three of warm-up
}

TEST_F(RunBooks, WhatIsNoNumberStopsTheRunUnlessItWasSkippedForThat) {
  for (const auto& [loss, norm] : {std::pair(kNan, 1.0), std::pair(1.0, kNan)}) {
    const std::string message = error_of<SystemFailure>(
        [&, l = loss, n = norm] { finish_step(*run_, prepared_, record(l, n)); });
    EXPECT_NE(message.find("step 0: loss"), std::string::npos) << message;
    StepRecord skipped = record(loss, norm);
    skipped.updated = false;
    skipped.skipped = SkippedStep{"nan", ""};
    skipped.skipped_steps = 1;
    finish_step(*run_, prepared_, skipped);
    EXPECT_EQ(last_row()["skipped"], "nan");
    EXPECT_NE(last_row()["detail"].get<std::string>().find("nan"), std::string::npos);
    EXPECT_FALSE(last_row().contains("grad_norm"));
  }
  // The update of earlier steps, made behind a step with a bad sample, is like any other.
  StepRecord bad_sample = record(0, kNan);
  bad_sample.skipped = SkippedStep{"bad-sample", "rank 0: damaged"};
  EXPECT_THROW(finish_step(*run_, prepared_, bad_sample), SystemFailure);
  bad_sample.gradient_norm = 4;
  finish_step(*run_, prepared_, bad_sample);
  EXPECT_EQ(last_row()["grad_norm"].get<double>(), 4);
  EXPECT_EQ(run_->skipped, 3);
}

TEST_F(RunBooks, AResultIsOfTheStepsThatWereBooked) {
  const TrainResult none = result_of(*run_);
  EXPECT_EQ(none.steps, 0);
  EXPECT_EQ(none.median_step_s, 0);
  for (int step = 0; step < 12; ++step) {
    run_->losses.push_back(12 - step);
    run_->step_seconds.push_back(step == 4 ? 100 : step % 3);
    run_->predicted_seconds.push_back(7);
  }
  run_->skipped = 2;
  run_->validation_losses = {3, 1.5};
  run_->stopped = true;
  const TrainResult result = result_of(*run_);
  EXPECT_EQ(result.steps, 14);
  EXPECT_EQ(result.skipped, 2);
  EXPECT_EQ(result.first_loss, 12);
  EXPECT_EQ(result.last_loss, 5.5);  // mean of 10 to 1
  EXPECT_EQ(result.median_step_s, 1);
  EXPECT_EQ(result.median_predicted_s, 7);
  EXPECT_EQ(result.validation_loss, 1.5);
  EXPECT_TRUE(result.interrupted);
}

}  // namespace
}  // namespace entrain::engine
