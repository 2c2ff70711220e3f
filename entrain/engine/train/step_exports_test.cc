#include "entrain/engine/train/step_exports.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;

PreparedStep exported_step(std::int64_t step) {
  PreparedStep prepared;
  prepared.step = step;
  prepared.llm_tokens = 1000;
  prepared.predicted.makespan = milliseconds(80);
  prepared.predicted.lanes = {{{milliseconds(60), milliseconds(80), 0}}};
  prepared.assignment.stats.lower_bound_s = 0.07;
  return prepared;
}

StepRecord exported_record(double loss) {
  StepRecord record;
  record.loss = loss;
  record.gradient_norm = 0.75;
  record.learning_rate = 1e-3;
  record.step_s = 0.1;
  record.data = {milliseconds(30), milliseconds(500)};
  record.measured.makespan = milliseconds(100);
  record.measured.lanes = {{{milliseconds(90), milliseconds(95), 4096}}};
  return record;
}

RunConfig config_in(const std::filesystem::path& folder) {
  RunConfig config;
  config.output = folder.string();
  config.steps = 9;
  config.metrics.tensorboard = true;
  config.metrics.prometheus = (folder / "run.prom").string();
  return config;
}

TEST(StepExports, RowHasTheStepsFigures) {
  StepRecord record = exported_record(2.5);
  const RunRow row = run_row(exported_step(3), record);
  EXPECT_EQ(row.step, 3);
  EXPECT_EQ(row.loss, 2.5);
  EXPECT_EQ(row.step_s, 0.1);
  EXPECT_EQ(row.predicted_step_s, 0.08);
  EXPECT_EQ(row.lower_bound_s, 0.07);
  EXPECT_EQ(row.llm_tokens, 1000);
  EXPECT_EQ(row.data_wait_s, 0.03);
  EXPECT_EQ(row.grad_norm, 0.75);
  EXPECT_NEAR(row.bubble.value(), 0.1, 1e-12);
  ASSERT_EQ(row.lanes.size(), 1U);
  EXPECT_EQ(row.lanes[0].busy_s, 0.09);
  EXPECT_EQ(row.lanes[0].peak_bytes, 4096);
  record.updated = false;
  EXPECT_FALSE(run_row(exported_step(3), record).grad_norm.has_value());
  record.skipped = SkippedStep{"nan", "loss inf"};
  EXPECT_FALSE(run_row(exported_step(3), record).loss.has_value());
}

TEST(StepExports, WritesBothFiles) {
  const oracle::TemporaryFolder folder;
  const RunConfig config = config_in(folder.path());
  {
    StepExports exports(config, 0);
    exports.step(exported_step(0), exported_record(3));
    EXPECT_NE(read_file(config.metrics.prometheus).find("\"} 3\n"), std::string::npos);
    exports.step(exported_step(1), exported_record(2.5));
    exports.validation(2, 2.75);
  }
  const std::string text = read_file(config.metrics.prometheus);
  for (const char* line : {"entrain_step{", "entrain_loss{", "entrain_validation_loss{"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_NE(text.find("\"} 2.75\n"), std::string::npos) << text;
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / kTensorboardName)) {
    events += read_file(entry.path());
  }
  for (const char* tag : {"loss",
                          "step_s",
                          "llm_tokens_per_s",
                          "grad_norm",
                          "learning_rate",
                          "bubble",
                          "data_wait_s",
                          "validation_loss"}) {
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  }
}

// A place that cannot be had stops a run before it begins, and does not end one that goes on.
TEST(StepExports, OnlyTheStartFailsWithoutAPlaceForPrometheus) {
  const oracle::TemporaryFolder folder;
  RunConfig config = config_in(folder.path());
  config.metrics.tensorboard = false;
  const std::filesystem::path place = folder.write("place", "a file where a folder is needed");
  config.metrics.prometheus = (place / "run.prom").string();
  EXPECT_THROW(StepExports(config, 0), SystemFailure);
  std::filesystem::remove(place);
  StepExports exports(config, 0);
  EXPECT_TRUE(std::filesystem::exists(config.metrics.prometheus));
  std::filesystem::remove_all(place);
  folder.write("place", "again");
  EXPECT_NO_THROW(exports.step(exported_step(0), exported_record(3)));
  EXPECT_EQ(read_file(place), "again");
}

TEST(StepExports, WritesNothingUnlessAsked) {
  const oracle::TemporaryFolder folder;
  RunConfig config = config_in(folder.path());
  config.metrics = {};
  { StepExports(config, 0).step(exported_step(0), exported_record(3)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace entrain::engine
