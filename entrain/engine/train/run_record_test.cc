#include "entrain/engine/train/run_record.h"

#include <limits>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Of a run that no rank has begun.
class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest() {
    folder_.config.data.validation.clear();
    setup_ = prepare_run(folder_.config);
    open_folder(setup_);
    book_ = std::make_unique<RunRecord>(setup_, 0);
    prepared_ = prepare_step(setup_, 0);
  }

  // Of step 0, as the barrier has it: the loss is still a sum.
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
  std::unique_ptr<RunRecord> book_;
  PreparedStep prepared_;
};

TEST_F(RunRecordTest, ALossIsPerTargetTokenAndARateThatOfTheStep) {
  book_->step(prepared_, record(2.5, 3));
  EXPECT_DOUBLE_EQ(last_row()["loss"].get<double>(), 2.5);
  EXPECT_EQ(last_row()["grad_norm"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(last_row()["learning_rate"].get<double>(),
                   folder_.config.optimizer.learning_rate / 3);  // the first of three of warm-up
}

TEST_F(RunRecordTest, WhatIsNoNumberStopsTheRunUnlessItWasSkippedForThat) {
  for (const auto& [loss, norm] : {std::pair(kNan, 1.0), std::pair(1.0, kNan)}) {
    const std::string message =
        error_of<SystemFailure>([&, l = loss, n = norm] { book_->step(prepared_, record(l, n)); });
    EXPECT_NE(message.find("step 0: loss"), std::string::npos) << message;
    StepRecord skipped = record(loss, norm);
    skipped.updated = false;
    skipped.skipped = SkippedStep{"nan", ""};
    skipped.skipped_steps = 1;
    book_->step(prepared_, skipped);
    EXPECT_EQ(last_row()["skipped"], "nan");
    EXPECT_NE(last_row()["detail"].get<std::string>().find("nan"), std::string::npos);
    EXPECT_FALSE(last_row().contains("grad_norm"));
  }
  // The update of earlier steps, made behind a step with a bad sample, is like any other.
  StepRecord bad_sample = record(0, kNan);
  bad_sample.skipped = SkippedStep{"bad-sample", "rank 0: damaged"};
  EXPECT_THROW(book_->step(prepared_, bad_sample), SystemFailure);
  bad_sample.gradient_norm = 4;
  book_->step(prepared_, bad_sample);
  EXPECT_EQ(last_row()["grad_norm"].get<double>(), 4);
  EXPECT_EQ(book_->figures().skipped, 3);
}

TEST_F(RunRecordTest, FiguresAreOfTheStepsThatWereNoted) {
  const RunFigures none = book_->figures();
  EXPECT_EQ(none.steps, 0);
  EXPECT_EQ(none.median_step_s, 0);
  for (int step = 0; step < 12; ++step) {
    prepared_.step = step;
    prepared_.predicted.makespan = std::chrono::seconds(7);
    StepRecord of = record(12 - step, 1);
    of.step = step;
    of.step_s = step == 4 ? 100 : step % 3;
    book_->step(prepared_, of);
  }
  for (int step = 12; step < 14; ++step) {
    prepared_.step = step;
    StepRecord skipped = record(1, 1);
    skipped.step = step;
    skipped.skipped = SkippedStep{"bad-sample", "rank 0: damaged"};
    book_->step(prepared_, skipped);
  }
  book_->validation(12, 3, 0);
  book_->validation(14, 1.5, 0);
  const RunFigures figures = book_->figures();
  EXPECT_EQ(figures.steps, 14);
  EXPECT_EQ(figures.skipped, 2);
  EXPECT_EQ(figures.first_loss, 12);
  EXPECT_EQ(figures.last_loss, 5.5);  // mean of 10 to 1
  EXPECT_EQ(figures.median_step_s, 1);
  EXPECT_EQ(figures.median_predicted_s, 7);
  EXPECT_EQ(figures.validation_loss, 1.5);
}

}  // namespace
}  // namespace entrain::engine
