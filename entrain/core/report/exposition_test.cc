#include "entrain/core/report/exposition.h"

#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/output.h"

namespace entrain {
namespace {

TEST(Exposition, HasHelpTypeAndValueOfEveryFigure) {
  RunRow row;
  row.step = 4;
  row.loss = 2.5;
  row.step_s = 0.5;
  row.llm_tokens = 100;
  row.lanes = {{0, 0, 0.25, 0.2, {}, {}, {}}, {0, 1, 0.5, 0.4, {}, 77, {}}};
  RunTotals totals;
  totals.run = "runs/demo";
  totals.steps = 20;
  totals.skipped = 1;
  totals.finished_s = 1.5;
  EXPECT_EQ(exposition(row, totals), R"(# HELP entrain_step Finished steps.
# TYPE entrain_step gauge
entrain_step{run="runs/demo"} 5
# HELP entrain_steps Steps of the whole run.
# TYPE entrain_steps gauge
entrain_steps{run="runs/demo"} 20
# HELP entrain_skipped_steps_total Skipped steps.
# TYPE entrain_skipped_steps_total counter
entrain_skipped_steps_total{run="runs/demo"} 1
# HELP entrain_step_finished_timestamp_seconds When the last step ended, in seconds since 1970.
# TYPE entrain_step_finished_timestamp_seconds gauge
entrain_step_finished_timestamp_seconds{run="runs/demo"} 1.5
# HELP entrain_loss Cross-entropy per target token of the last step.
# TYPE entrain_loss gauge
entrain_loss{run="runs/demo"} 2.5
# HELP entrain_step_seconds Time of the last step.
# TYPE entrain_step_seconds gauge
entrain_step_seconds{run="runs/demo"} 0.5
# HELP entrain_llm_tokens_per_second LLM tokens per second of the last step.
# TYPE entrain_llm_tokens_per_second gauge
entrain_llm_tokens_per_second{run="runs/demo"} 200
# HELP entrain_lane_busy_seconds Time of a lane's forwards and backwards in the last step.
# TYPE entrain_lane_busy_seconds gauge
entrain_lane_busy_seconds{run="runs/demo",replica="0",lane="0"} 0.25
entrain_lane_busy_seconds{run="runs/demo",replica="0",lane="1"} 0.5
# HELP entrain_lane_predicted_busy_seconds The same time, as predicted.
# TYPE entrain_lane_predicted_busy_seconds gauge
entrain_lane_predicted_busy_seconds{run="runs/demo",replica="0",lane="0"} 0.2
entrain_lane_predicted_busy_seconds{run="runs/demo",replica="0",lane="1"} 0.4
# HELP entrain_lane_peak_bytes Peak of a lane's activations in the last step.
# TYPE entrain_lane_peak_bytes gauge
entrain_lane_peak_bytes{run="runs/demo",replica="0",lane="1"} 77
)");
}

TEST(Exposition, EscapesTheRunAndWritesWhatIsNotFinite) {
  RunRow row;
  row.loss = std::numeric_limits<double>::quiet_NaN();
  RunTotals totals;
  totals.run = "a\"b\\c\nd";
  totals.validation = ValidationRow{1, std::numeric_limits<double>::infinity()};
  const std::string text = exposition(row, totals);
  EXPECT_NE(text.find(R"(entrain_loss{run="a\"b\\c\nd"} NaN)"), std::string::npos) << text;
  EXPECT_NE(text.find("entrain_validation_loss{run=\"a\\\"b\\\\c\\nd\"} +Inf"), std::string::npos)
      << text;
  EXPECT_TRUE(is_kind(OutputKind::kExposition, text));
}

}  // namespace
}  // namespace entrain
