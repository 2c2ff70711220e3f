// Skipped steps where the gradients of several global batches make one update: against a loop that
// knows from the start which steps are in it.
#include <filesystem>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/faulty_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::Rows;
using tiny::rows_of;
using tiny::run_without;
using tiny::Steps;
using tiny::train_now;

const std::string kTiedModel = concat(tiny::kRunModel, "tie_word_embeddings = true\n");

// Of an update of `every` steps: how many are out, and whether the last one is.
bool has_update(const Steps& out, std::int64_t steps, int every, int count, bool last_out) {
  for (std::int64_t begin = 0; begin < steps; begin += every) {
    int left_out = 0;
    for (std::int64_t step = begin; step < begin + every; ++step) {
      left_out += out.contains(step) ? 1 : 0;
    }
    if (left_out == count && out.contains(begin + every - 1) == last_out) {
      return true;
    }
  }
  return false;
}

// Gradients are rounded once more where they were scaled.
void expect_near(const std::map<std::int64_t, double>& rows,
                 const std::map<std::int64_t, double>& expected,
                 const std::string& what) {
  for (const auto& [step, value] : expected) {
    ASSERT_TRUE(rows.contains(step)) << what << " of step " << step;
    EXPECT_NEAR(rows.at(step), value, 2e-5 * value) << what << " of step " << step;
  }
}

class SkippedUpdates : public testing::Test {
 protected:
  SkippedUpdates() {
    run_.config.steps = 12;
    run_.config.optimizer.update_every = 2;
    run_.config.optimizer.clip_norm = 0;
    run_.config.plan.replicas = 2;
    run_.config.plan.stages = {{"llm", 2}};
    run_.config.data.validation.clear();
    run_.config.faults.on_bad_sample = kSkipStep;
  }

  // Two samples, so that an update may lose one step or both.
  Steps spoil() {
    Steps out = tiny::steps_with(run_.config, "train/s4");
    out.merge(tiny::steps_with(run_.config, "train/s7"));
    tiny::damage(run_.config, "train/s4");
    tiny::damage(run_.config, "train/s7");
    return out;
  }

  tiny::RunFolder run_;
};

TEST_F(SkippedUpdates, AnUpdateIsMadeOfTheStepsThatCanBeRead) {
  run_.write("tied.toml", kTiedModel);
  const Steps out = spoil();
  ASSERT_TRUE(has_update(out, 12, 2, 1, false));
  ASSERT_TRUE(has_update(out, 12, 2, 1, true));
  ASSERT_TRUE(has_update(out, 12, 2, 2, true));
  for (const auto& [name, model, sharded] :
       {std::tuple("plain", "model.toml", false), std::tuple("tied", "tied.toml", true)}) {
    RunConfig config = run_.in_folder(name);
    config.model_file = run_.path(model).string();
    config.plan.shard_optimizer = sharded;
    const Rows expected = run_without(config, out);
    testing::internal::CaptureStderr();
    const TrainResult result = train_now(config);
    const std::string shown = testing::internal::GetCapturedStderr();
    const Rows rows = rows_of(config);
    expect_near(rows.losses, expected.losses, "loss");
    expect_near(rows.norms, expected.norms, "norm");
    EXPECT_EQ(rows.losses.size(), expected.losses.size());
    EXPECT_EQ(rows.norms.size(), expected.norms.size());
    EXPECT_EQ(result.steps, 12);
    EXPECT_EQ(result.skipped, static_cast<std::int64_t>(out.size()));
    std::int64_t count = 0;
    for (const std::int64_t step : out) {
      ASSERT_TRUE(rows.skipped.contains(step)) << step;
      EXPECT_EQ(rows.skipped.at(step)["skipped_steps"], ++count);
      const bool updated = rows.norms.contains(step);
      EXPECT_EQ(updated, step % 2 == 1 && !out.contains(step - 1)) << step;
      const std::string effect = updated ? "the update was made without it" : "no update was made";
      EXPECT_NE(shown.find(concat("step ", step, " skipped, ", effect, " (bad-sample)")),
                std::string::npos)
          << shown;
    }
  }
}

// Tied, so that the gradient of the table's copy, which is in no buffer, has to go as well.
TEST_F(SkippedUpdates, ALossThatIsNoNumberDropsWhatTheUpdateHasSoFar) {
  run_.write("model.toml", kTiedModel);
  run_.config.steps = 6;
  run_.config.optimizer.update_every = 3;
  run_.config.faults.on_nan = kSkipStep;
  run_.config.execution.fault_kind = "nan";
  run_.config.checkpoint.resume = kResumeNever;
  for (const int step : {0, 1, 2}) {
    Steps out;
    for (std::int64_t dropped = 0; dropped <= step; ++dropped) {
      out.insert(dropped);
    }
    run_.config.execution.fault_drill.clear();
    const Rows expected = run_without(run_.config, out);
    run_.config.execution.fault_drill = {1, step % 2, step};
    testing::internal::CaptureStderr();
    const TrainResult result = train_now(run_.config);
    const std::string shown = testing::internal::GetCapturedStderr();
    const Rows rows = rows_of(run_.config);
    expect_near(rows.losses, expected.losses, "loss");
    EXPECT_EQ(rows.norms, expected.norms);  // nothing had to be scaled
    ASSERT_EQ(rows.skipped.size(), 1U);
    EXPECT_EQ(rows.skipped.at(step)["skipped"], "nan");
    EXPECT_NE(rows.skipped.at(step)["detail"].get<std::string>().find("nan"), std::string::npos);
    EXPECT_EQ(result.skipped, 1);
    EXPECT_NE(shown.find(concat("step ", step, " skipped, no update was made (nan)")),
              std::string::npos)
        << shown;
  }
}

// Also that the count of updates, which Adam's first steps depend on, is that of those made.
TEST_F(SkippedUpdates, ARunResumesExactly) {
  run_.config.checkpoint.every_steps = 2;
  const Steps out = spoil();
  const RunConfig whole = run_.in_folder("whole");
  train_now(whole);
  int stops = 0;
  for (int stop = 2; stop < 12; ++stop) {
    if (out.contains(stop)) {
      continue;  // a step that is not run can hardly fail
    }
    RunConfig config = run_.in_folder(concat("stopped-", stop));
    config.execution.fault_drill = {1, 0, stop};
    error_of<InternalError>([&] { train_now(config); });
    config.execution.fault_drill.clear();
    const TrainResult resumed = train_now(config);
    EXPECT_EQ(resumed.first_step, stop / 2 * 2);
    ++stops;
    EXPECT_EQ(rows_of(config).losses, rows_of(whole).losses) << "stopped in step " << stop;
    EXPECT_EQ(rows_of(config).norms, rows_of(whole).norms) << "stopped in step " << stop;
    EXPECT_EQ(rows_of(config).skipped, rows_of(whole).skipped) << "stopped in step " << stop;
    EXPECT_EQ(tiny::weights_of(config), tiny::weights_of(whole)) << "stopped in step " << stop;
  }
  EXPECT_GE(stops, 2);
}

TEST_F(SkippedUpdates, OnlyAnUpdateEndsARowOfSkippedSteps) {
  run_.config.faults.max_skips_in_a_row = 1;
  const Steps out = tiny::steps_with(run_.config, "train/s4");
  ASSERT_EQ(out.size(), 6U);  // one of every update
  tiny::damage(run_.config, "train/s4");
  EXPECT_EQ(train_now(run_.config).skipped, 6);
  std::filesystem::remove(run_.path("train-000000.tar"));
  run_.config.checkpoint.resume = kResumeNever;
  const std::string message = error_of<SystemFailure>([&] { train_now(run_.config); });
  EXPECT_NE(message.find("step 1: 2 steps in a row were skipped with no update between them"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace entrain::engine
