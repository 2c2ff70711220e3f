#include "entrain/core/report/progress_page.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace entrain {
namespace {

RunProgress progress_of(int num_lanes) {
  RunProgress progress;
  progress.run = "runs/demo";
  progress.step = 1'200;
  progress.steps = 2'400;
  progress.elapsed_s = 62;
  progress.remaining_s = 61;
  progress.loss = 2.5;
  progress.first_loss = 7.25;
  progress.lowest_loss = 2.25;
  progress.losses = {7, 5, 4, 3};
  progress.validation = ValidationRow{1'000, 2.75};
  progress.step_s = 0.05;
  progress.p95_step_s = 0.06;
  progress.predicted_step_s = 0.04;
  progress.lower_bound_s = 0.025;
  progress.llm_tokens_per_s = 12'345.4;
  progress.samples_per_s = 40;
  progress.data_wait = 0.001;
  progress.bubble = 0.25;
  progress.state_bytes = 3 << 20;
  progress.total_bytes = 5 << 20;
  progress.peak_bytes = 7 << 20;
  progress.predicted_peak_bytes = 8 << 20;
  progress.highest_peak = LanePeak{0, 1, 1'100, 9 << 20, 12 << 20};
  for (int lane = 0; lane < num_lanes; ++lane) {
    progress.lanes.push_back({lane / 2, lane % 2, "llm 0", (lane + 1) / 100.0, 0.5});
  }
  return progress;
}

std::string text_of(const RunProgress& progress, bool colour = false) {
  PageStyle style;
  style.colour = colour;
  style.clock = "14:03:22";
  std::string text;
  for (const std::string& line : progress_page(progress, style)) {
    text += line + "\n";
  }
  return text;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::size_t width = 0;
  for (const char c : text) {
    width += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    if (c == '\n') {
      most = std::max(most, width - 1);
      width = 0;
    }
  }
  return most;
}

TEST(ProgressPage, ShowsTheFigures) {
  const std::string text = text_of(progress_of(2));
  for (const char* words : {"runs/demo",
                            "running  14:03:22\n",
                            "1,200 of 2,400",
                            " 50 %\n         1:02 elapsed, about 1:01 left",
                            "2.5000  first 7.2500, lowest 2.2500",
                            "█▅▃▁",
                            "validation 2.7500 after step 1,000",
                            "50 ms a step (median of the last 50), p95 60 ms",
                            "predicted 40 ms, measured is 1.25 times that",
                            "bound 25 ms, measured is 2.00 times that",
                            "12,345 LLM tokens/s, 40.0 samples/s",
                            "0.1 % of the step waiting",
                            "moments 5.0 MiB, fullest rank 3.0 MiB",
                            "fullest lane 7.0 MiB, predicted 8.0 MiB",
                            "idle 25 % of the last step",
                            "0:1  llm 0",
                            "2 % busy, predicted 50 %"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LE(widest(text), kPageColumns) << text;
}

TEST(ProgressPage, SummarisesManyLanes) {
  const std::string text = text_of(progress_of(64));
  EXPECT_NE(text.find("busiest 31:1"), std::string::npos) << text;
  EXPECT_NE(text.find("idlest  0:0"), std::string::npos) << text;
  EXPECT_NE(text.find("median  15:1"), std::string::npos) << text;
  EXPECT_NE(text.find("64 lanes in all"), std::string::npos) << text;
}

TEST(ProgressPage, KeepsItsWidthAndNoControlCharacters) {
  RunProgress progress = progress_of(1);
  progress.run = std::string(300, 'x') + "\x1b[2J";
  progress.lanes[0].stages = "a very long list of stages, llm 0\n";
  progress.warnings = {"skipped \x1b[31m\xC2\x9b" + std::string(200, 'w') + " in words",
                       std::string("many ") + std::string(30, 'a') + " " + std::string(60, 'b')};
  const std::string text = text_of(progress);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\xC2\x9b"), std::string::npos);
  EXPECT_LE(widest(text), kPageColumns) << text;
  EXPECT_NE(text_of(progress, true).find("\x1b[33m"), std::string::npos);
}

TEST(ProgressPage, WorksWithLittle) {
  RunProgress progress;
  progress.run = "r";
  progress.step = 1;
  const std::string text = text_of(progress);
  EXPECT_NE(text.find("loss     not a number"), std::string::npos) << text;
  EXPECT_EQ(text.find("lanes"), std::string::npos) << text;
}

TEST(ProgressPage, ShowsTheMostMemorySoFarBesideItsLimit) {
  RunProgress progress = progress_of(1);
  const std::string most = "most so far 9.0 MiB: lane 0:1 in step 1,100, ";
  EXPECT_NE(text_of(progress).find(most + "75 % of its limit 12.0 MiB"), std::string::npos)
      << text_of(progress);
  progress.highest_peak->limit_bytes = 0;
  EXPECT_NE(text_of(progress).find(most + "no limit"), std::string::npos) << text_of(progress);
}

TEST(ProgressPage, JsonHasTheSameFigures) {
  const Json document = to_json(progress_of(2));
  EXPECT_EQ(document["step"], 1'200);
  EXPECT_EQ(document["validation"]["loss"], 2.75);
  EXPECT_EQ(document["lanes"][1]["busy"], 0.02);
  EXPECT_EQ(document["highest_peak"]["bytes"], 9 << 20);
  EXPECT_EQ(document["highest_peak"]["limit_bytes"], 12 << 20);
  EXPECT_TRUE(to_json(RunProgress{})["predicted_peak_bytes"].is_null());
}

TEST(Sparkline, LeavesBlanksForWhatIsNotFinite) {
  EXPECT_EQ(sparkline({1, std::numeric_limits<double>::quiet_NaN(), 2}), "▁ █");
  EXPECT_EQ(sparkline({3, 3}), "▁▁");
  EXPECT_EQ(sparkline({}), "");
}

TEST(ShareBar, FillsItsShare) {
  EXPECT_EQ(share_bar(0.5, 4), "██░░");
  EXPECT_EQ(share_bar(7, 2), "██");
  EXPECT_EQ(share_bar(0, 2), "░░");
}

}  // namespace
}  // namespace entrain
