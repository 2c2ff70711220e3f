#include "entrain/engine/train/metrics.h"

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStdout;

// Two replicas of one lane; sample 1's image is encoded in slot 0 and decoded in slot 1.
PreparedStep prepared_step() {
  PreparedStep prepared;
  prepared.batch = {4, 7, 9};
  prepared.llm_tokens = 1000;
  prepared.encoder_tokens = 640;
  prepared.target_tokens = 50;
  prepared.predicted.makespan = milliseconds(80);
  prepared.predicted.lanes = {{{milliseconds(60), milliseconds(80), 0}},
                              {{milliseconds(80), milliseconds(80), 0}}};
  prepared.assignment.stats.lower_bound_s = 0.07;
  prepared.assignment.stats.assign_ms = 1.5;
  ReplicaAssignment first;
  first.num_slots = 2;
  first.modules = {{{{0, 0}, {1, 0}}, {}}, {{{0, -1}}, {{1, -1}}}};
  ReplicaAssignment second;
  second.num_slots = 2;
  second.modules = {{{}, {}}, {{{2, -1, 0, 3}}, {{2, -1, 3, 8}}}};
  prepared.assignment.replicas = {first, second};
  return prepared;
}

StepRecord step_record(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.5;
  record.gradient_norm = 0.75;
  record.learning_rate = 1e-3;
  record.step_s = 0.1;
  record.gap_s = 0.02;
  record.assign_wait_s = 0.015;
  record.data = {std::chrono::milliseconds(30), std::chrono::milliseconds(500)};
  record.decode_threads = 2;
  record.decoded = {6, 1, 1200, 0.75, 4};
  record.expected_s = 0.096;
  record.measured.makespan = milliseconds(100);
  record.measured.lanes = {{{milliseconds(90), milliseconds(95), 0}},
                           {{milliseconds(40), milliseconds(100), 0}}};
  record.processor_s = {{0.08}, {0.03}};
  return record;
}

TEST(MetricsLog, WritesEveryFigureOfAStep) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 10, 1);
  CaptureStdout();
  log.step(prepared_step(), step_record(3));
  const std::string shown = GetCapturedStdout();
  EXPECT_NE(shown.find("step: 100 ms (predicted 80, at this run's speed 96)"), std::string::npos)
      << shown;
  EXPECT_NE(shown.find("data: 30 % of the step waiting, 6 more decode threads would do"),
            std::string::npos)
      << shown;
  const std::vector<Json> lines = tiny::metrics_of(folder.path() / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 1U);
  const Json& line = lines[0];
  const std::map<std::string, double> expected = {{"step", 3},
                                                  {"steps", 10},
                                                  {"loss", 2.5},
                                                  {"grad_norm", 0.75},
                                                  {"learning_rate", 1e-3},
                                                  {"samples", 3},
                                                  {"llm_tokens", 1000},
                                                  {"encoder_tokens", 640},
                                                  {"target_tokens", 50},
                                                  {"step_s", 0.1},
                                                  {"gap_s", 0.02},
                                                  {"assign_wait_s", 0.015},
                                                  {"predicted_step_s", 0.08},
                                                  {"expected_step_s", 0.096},
                                                  {"lower_bound_s", 0.07},
                                                  {"bubble", 1 - (90.0 + 40.0) / 200},
                                                  {"predicted_bubble", 1 - (60.0 + 80.0) / 160},
                                                  {"assign_ms", 1.5},
                                                  {"deferred", 1},
                                                  {"data_wait_s", 0.03},
                                                  {"decode_s", 0.5},
                                                  {"chunks", 2}};
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(line.contains(key)) << key;
    EXPECT_NEAR(line[key].get<double>(), value, 1e-12) << key;
  }
  EXPECT_EQ(line["num_slots"], Json::parse("[2, 2]"));
  ASSERT_EQ(line["lanes"].size(), 2U);
  for (int replica = 0; replica < 2; ++replica) {
    const Json& lane = line["lanes"][static_cast<std::size_t>(replica)];
    EXPECT_EQ(lane["replica"], replica);
    EXPECT_EQ(lane["lane"], 0);
    EXPECT_NEAR(lane["busy_s"].get<double>(), replica == 0 ? 0.09 : 0.04, 1e-12);
    EXPECT_NEAR(lane["predicted_busy_s"].get<double>(), replica == 0 ? 0.06 : 0.08, 1e-12);
    EXPECT_NEAR(lane["processor_s"].get<double>(), replica == 0 ? 0.08 : 0.03, 1e-12);
    EXPECT_NEAR(lane["bubble"].get<double>(), replica == 0 ? 0.1 : 0.6, 1e-12);
  }
  EXPECT_EQ(
      line["decoded"],
      Json::parse(R"({"images": 6, "clips": 1, "patches": 1200, "seconds": 0.75, "threads": 4})"));
  EXPECT_EQ(line.size(), expected.size() + 3) << line.dump();
}

TEST(MetricsLog, AsksForMoreWorkersOfAFeedWhereOneDecodes) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 10, 1, /*continue_at=*/3, {.fed = true});
  StepRecord record = step_record(4);
  record.decoded.pieces = 40;
  record.decoded.fed = 30;
  CaptureStdout();
  log.step(prepared_step(), record);
  const std::string shown = GetCapturedStdout();
  EXPECT_NE(shown.find("30 % of the step waiting, a feed of more workers would do"),
            std::string::npos)
      << shown;
  const Json line = Json::parse(read_file(folder.path() / "metrics.jsonl"));
  EXPECT_EQ(line["fed"], 0.75);
  EXPECT_FALSE(line.contains("shared"));
}

TEST(MetricsLog, SaysWhichShareOfPiecesWasFedAndShared) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 10, 1, /*continue_at=*/3, {.fed = true});
  StepRecord record = step_record(4);
  record.decoded.pieces = 40;
  record.decoded.shared = 30;
  CaptureStdout();
  log.step(prepared_step(), record);
  const std::string shown = GetCapturedStdout();
  EXPECT_EQ(shown.find("a feed of more workers"), std::string::npos) << shown;
  const Json line = Json::parse(read_file(folder.path() / "metrics.jsonl"));
  EXPECT_EQ(line["fed"], 0);  // there are feeds, none of which has served
  EXPECT_EQ(line["shared"], 0.75);
}

TEST(MetricsLog, SpeaksOfDecodingOnceStepsAreSteady) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 10, 1, /*continue_at=*/3);
  const auto shown_of = [&](std::int64_t step) {
    CaptureStdout();
    log.step(prepared_step(), step_record(step));
    return GetCapturedStdout();
  };
  // The first step's decoding includes the start of Python processes.
  const std::string first = shown_of(3);
  EXPECT_NE(first.find("data: 30 % of the step waiting  "), std::string::npos) << first;
  EXPECT_NE(shown_of(4).find("6 more decode threads would do"), std::string::npos);
  for (std::int64_t step = 5; step < 7; ++step) {
    EXPECT_EQ(shown_of(step).find("the model takes"), std::string::npos);
  }
  EXPECT_NE(shown_of(7).find("data: 4 threads decode 8 images/s (1,600 patches/s) and 1.3 clips/s "
                             "each; the model takes 86 images/s and 14 clips/s\n"),
            std::string::npos);
  EXPECT_EQ(shown_of(8).find("the model takes"), std::string::npos);
}

TEST(MetricsLog, PutsMeasuredMemoryBesideThePrediction) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 10, 100);
  PreparedStep prepared = prepared_step();
  StepRecord record = step_record(3);
  prepared.predicted.lanes[0][0].peak_bytes = 900;
  record.measured.lanes[0][0].peak_bytes = 1000;
  log.step(prepared, record);
  const Json lanes = tiny::metrics_of(folder.path() / "metrics.jsonl").at(0)["lanes"];
  EXPECT_EQ(lanes[0]["peak_bytes"], 1000);
  EXPECT_EQ(lanes[0]["predicted_peak_bytes"], 900);
  EXPECT_FALSE(lanes[1].contains("peak_bytes")) << "not measured";
}

TEST(MetricsLog, KeepsLinesWhileTheRunGoesOn) {
  const oracle::TemporaryFolder folder;
  folder.write("metrics.jsonl", "of an earlier run\n");
  MetricsLog log(folder.path(), 10, 1);
  CaptureStdout();
  log.step(prepared_step(), step_record(0));
  log.validation(1, 1.25, 640);
  const std::string shown = GetCapturedStdout();
  const std::vector<Json> lines = tiny::metrics_of(folder.path() / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], Json::parse(R"({"step": 1, "validation_loss": 1.25, "patches": 640})"));
  EXPECT_NE(shown.find("step: 1  validation loss: 1.25"), std::string::npos) << shown;
}

TEST(MetricsLog, ShowsEveryFewStepsAndTheLast) {
  const oracle::TemporaryFolder folder;
  MetricsLog log(folder.path(), 9, 4);
  const PreparedStep prepared = prepared_step();
  std::vector<std::int64_t> shown;
  for (std::int64_t step = 0; step < 9; ++step) {
    CaptureStdout();
    log.step(prepared, step_record(step));
    if (!GetCapturedStdout().empty()) {
      shown.push_back(step);
    }
  }
  EXPECT_EQ(shown, (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_EQ(tiny::metrics_of(folder.path() / "metrics.jsonl").size(), 9U);
  StepRecord record = step_record(9);
  record.expected_s.reset();  // as in a run's first steps
  CaptureStdout();
  MetricsLog(folder.path(), 10, 4).step(prepared, record);
  const std::string line = GetCapturedStdout();
  for (const char* part : {"step:    9/10",
                           "loss:  2.5000",
                           "grad_norm:  0.750",
                           "tps: 10",
                           "step: 100 ms (predicted 80)",
                           "bubble: 0.35",
                           "deferred: 1"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " is not in " << line;
  }
}

TEST(MetricsLog, SaysHowLongItTookAndWillTake) {
  const oracle::TemporaryFolder folder;
  std::chrono::steady_clock::time_point now;
  MetricsLog log(folder.path(), 105, 50, 5, {}, [&now] { return now; });
  const auto line_of = [&](std::int64_t step) {
    CaptureStdout();
    log.step(prepared_step(), step_record(step));
    return GetCapturedStdout();
  };
  now += std::chrono::seconds(30);
  std::string line = line_of(5);
  EXPECT_NE(line.find("tps: tokens of the LLM per second"), std::string::npos) << line;
  EXPECT_NE(line.find("0:30 elapsed, about 49:30 left"), std::string::npos) << line;
  now += std::chrono::seconds(59);
  EXPECT_EQ(line_of(6), "");
  now += std::chrono::seconds(1);
  line = line_of(7);
  EXPECT_EQ(line.find("tps: tokens"), std::string::npos) << "explained once: " << line;
  EXPECT_NE(line.find("1:30 elapsed, about 48:30 left"), std::string::npos) << line;
  now += std::chrono::seconds(60 * 60);
  EXPECT_NE(line_of(104).find("1:01:30 elapsed\n"), std::string::npos);
}

// Behind step 2 of a run that was killed while it wrote the row of step 3.
TEST(MetricsLog, ContinuesAfterTheStepsOfACheckpoint) {
  const oracle::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  CaptureStdout();
  {
    MetricsLog log(folder.path(), 10, 100);
    for (const std::int64_t step : {0, 1}) {
      log.step(prepared_step(), step_record(step));
      log.validation(step + 1, 0.5, 640);
    }
    log.step(prepared_step(), step_record(2));
  }
  const std::string before = read_file(path);
  write_file(path, before + R"({"step": 3, "lo)");
  MetricsLog log(folder.path(), 10, 100, 2);
  log.validation(2, 0.25, 640);
  log.step(prepared_step(), step_record(2));
  GetCapturedStdout();
  std::vector<std::pair<std::int64_t, bool>> rows;
  for (const Json& line : tiny::metrics_of(path)) {
    rows.emplace_back(line["step"].get<std::int64_t>(), line.contains("loss"));
  }
  const std::vector<std::pair<std::int64_t, bool>> expected = {
      {0, true}, {1, false}, {1, true}, {2, false}, {2, true}};
  EXPECT_EQ(rows, expected);
  EXPECT_TRUE(read_file(path).starts_with(before.substr(0, before.find("\n{\"step\":2,") + 1)));
  const oracle::TemporaryFolder empty;
  MetricsLog(empty.path(), 10, 100, 2);
  EXPECT_TRUE(std::filesystem::exists(empty.path() / "metrics.jsonl"));
}

TEST(MetricsLog, NamesTheFileItCannotWrite) {
  const oracle::TemporaryFolder folder;
  const std::string message =
      oracle::error_of<SystemFailure>([&] { MetricsLog(folder.path() / "absent", 1, 1); });
  EXPECT_NE(message.find((folder.path() / "absent" / "metrics.jsonl").string()), std::string::npos)
      << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain::engine
