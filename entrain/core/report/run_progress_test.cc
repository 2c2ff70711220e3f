#include "entrain/core/report/run_progress.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/folder_lock.h"

namespace entrain {
namespace {

using std::chrono::system_clock;

constexpr const char* kTenSteps = R"({"steps": 10, "data": {"feed": []}})";
constexpr const char* kTwoLanes = R"({"lanes": [[["vision", 0], ["llm", 0]], [["llm", 1]]]})";
constexpr const char* kTwoRanks =
    R"([{"parameter_bytes": 10, "gradient_bytes": 20, "optimizer_bytes": 30},
        {"parameter_bytes": 1, "gradient_bytes": 2, "optimizer_bytes": 3}])";

class WatchedRun : public ::testing::Test {
 protected:
  WatchedRun()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write("config.json", kTenSteps);
    write("plan.json", kTwoLanes);
  }
  ~WatchedRun() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  void append(const std::string& text) const {
    std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << text;
  }
  // Steps of 0.1 s and one of 0.4 s each ten, 100 tokens each; lanes are busy for 0.05 and 0.02 s.
  void add_steps(int from, int to, const std::string& more = "") const {
    for (int step = from; step < to; ++step) {
      const std::string time = step % 10 == 9 ? "0.4" : "0.1";
      append("{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(9 - step) +
             ",\"step_s\":" + time +
             ",\"predicted_step_s\":0.08,\"lower_bound_s\":0.05,\"llm_tokens\":100,\"samples\":4,"
             "\"data_wait_s\":0.001,\"gap_s\":0.1,\"bubble\":0.3," +
             more +
             "\"lanes\":[{\"replica\":0,\"lane\":0,\"busy_s\":0.05,\"predicted_busy_s\":0.04},"
             "{\"replica\":0,\"lane\":1,\"busy_s\":0.02,\"predicted_busy_s\":0.08}]}\n");
    }
  }
  [[nodiscard]] static bool warns_of(const RunProgress& progress, const std::string& words) {
    return std::any_of(
        progress.warnings.begin(), progress.warnings.end(), [&](const std::string& warning) {
          return warning.find(words) != std::string::npos;
        });
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(WatchedRun, HasFiguresOfItsSteps) {
  write("memory.json", kTwoRanks);
  add_steps(0, 5);
  append("{\"step\":5,\"validation_loss\":3.5}\n");
  const FolderLock lock(folder(), {});
  RunWatch watch(folder());
  const std::optional<RunProgress> progress = watch.look(system_clock::now());
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->state, RunState::kRunning);
  EXPECT_EQ(progress->step, 5);
  EXPECT_EQ(progress->steps, 10);
  EXPECT_DOUBLE_EQ(progress->elapsed_s, 1.0);
  EXPECT_DOUBLE_EQ(progress->remaining_s.value(), 1.0);
  EXPECT_EQ(progress->loss, 5);
  EXPECT_EQ(progress->first_loss, 9);
  EXPECT_EQ(progress->losses.size(), 5U);
  EXPECT_EQ(progress->validation->loss, 3.5);
  EXPECT_EQ(progress->step_s, 0.1);
  EXPECT_EQ(progress->predicted_step_s, 0.08);
  EXPECT_EQ(progress->lower_bound_s, 0.05);
  EXPECT_NEAR(progress->llm_tokens_per_s.value(), 1000, 1e-9);
  EXPECT_NEAR(progress->samples_per_s.value(), 40, 1e-9);
  EXPECT_NEAR(progress->data_wait.value(), 0.01, 1e-12);
  EXPECT_EQ(progress->state_bytes, 60);
  EXPECT_EQ(progress->total_bytes, 66);
  ASSERT_EQ(progress->lanes.size(), 2U);
  EXPECT_EQ(progress->lanes[0].stages, "vision 0, llm 0");
  EXPECT_NEAR(progress->lanes[1].busy, 0.2, 1e-12);
  EXPECT_NEAR(progress->lanes[1].predicted_busy, 1.0, 1e-12);
  EXPECT_TRUE(progress->warnings.empty());
}

TEST_F(WatchedRun, KeepsTheMostMemoryOfAllStepsBesideItsLimit) {
  const auto step = [&](int number, int first, int second) {
    append("{\"step\":" + std::to_string(number) + ",\"loss\":1,\"step_s\":0.1,\"lanes\":[" +
           "{\"replica\":0,\"lane\":0,\"busy_s\":0.05,\"predicted_busy_s\":0.04,\"peak_bytes\":" +
           std::to_string(first) +
           "},{\"replica\":0,\"lane\":1,\"busy_s\":0.02,\"predicted_busy_s\":0.08," +
           "\"peak_bytes\":" + std::to_string(second) + "}]}\n");
  };
  step(0, 900, 40);
  step(1, 800, 60);
  step(2, 700, 50);
  RunWatch watch(folder());
  RunProgress progress = watch.look(system_clock::now()).value();
  EXPECT_EQ(progress.peak_bytes, 700);
  ASSERT_TRUE(progress.highest_peak.has_value());
  EXPECT_EQ(progress.highest_peak->bytes, 900);
  EXPECT_EQ(progress.highest_peak->step, 0);
  EXPECT_EQ(progress.highest_peak->limit_bytes, 0);
  // By what each lane may hold the second is fuller.
  write("plan.json",
        R"({"lanes": [[["vision", 0]], [["llm", 1]]],
            "limits": {"bytes_per_lane": 0, "lane_bytes": [1000, 64]}})");
  RunWatch limited(folder());
  progress = limited.look(system_clock::now()).value();
  EXPECT_EQ(progress.highest_peak->bytes, 60);
  EXPECT_EQ(progress.highest_peak->lane, 1);
  EXPECT_EQ(progress.highest_peak->step, 1);
  EXPECT_EQ(progress.highest_peak->limit_bytes, 64);
  EXPECT_FALSE(warns_of(progress, "above its limit"));
  step(3, 700, 65);
  progress = limited.look(system_clock::now()).value();
  EXPECT_TRUE(warns_of(progress, "lane 0:1 held 65 B of activations in step 3, above its limit"));
}

TEST_F(WatchedRun, FollowsRowsAsTheyAreWritten) {
  RunWatch watch(folder());
  EXPECT_FALSE(watch.look(system_clock::now()).has_value());
  append("");
  EXPECT_FALSE(watch.look(system_clock::now()).has_value());
  add_steps(0, 3);
  append("{\"step\":3,\"los");
  EXPECT_EQ(watch.look(system_clock::now())->step, 3);
  append("s\":1}\n");
  EXPECT_EQ(watch.look(system_clock::now())->step, 4);
  add_steps(4, 10);
  const std::optional<RunProgress> progress = watch.look(system_clock::now());
  EXPECT_EQ(progress->state, RunState::kFinished);
  EXPECT_EQ(progress->p95_step_s, 0.4);
}

TEST_F(WatchedRun, BeginsAgainWhenTheRunDoes) {
  add_steps(0, 8);
  RunWatch watch(folder());
  EXPECT_EQ(watch.look(system_clock::now())->step, 8);
  std::filesystem::remove(folder() / "metrics.jsonl");
  add_steps(0, 2);
  const std::optional<RunProgress> progress = watch.look(system_clock::now());
  EXPECT_EQ(progress->step, 2);
  EXPECT_EQ(progress->losses.size(), 2U);
}

TEST_F(WatchedRun, WarnsOfAnEarlyEnd) {
  add_steps(0, 3);
  append("{\"step\":3");
  RunWatch watch(folder());
  const std::optional<RunProgress> progress = watch.look(system_clock::now());
  EXPECT_EQ(progress->state, RunState::kEnded);
  EXPECT_FALSE(progress->remaining_s.has_value());
  EXPECT_TRUE(warns_of(*progress, "the run ended after step 3 of 10"));
  EXPECT_TRUE(warns_of(*progress, "cut off"));
}

TEST_F(WatchedRun, WarnsOfSilence) {
  add_steps(0, 3);
  const FolderLock lock(folder(), {});
  RunWatch watch(folder());
  EXPECT_TRUE(watch.look(system_clock::now())->warnings.empty());
  const std::optional<RunProgress> later =
      watch.look(system_clock::now() + std::chrono::seconds(65));
  EXPECT_TRUE(warns_of(*later, "nothing was written for 1:0"));
  EXPECT_TRUE(warns_of(*later, "a step takes 200 ms"));
}

TEST_F(WatchedRun, WarnsOfSkipsFeedsAndDrift) {
  write("config.json", R"({"epochs": 2, "data": {"feed": ["h:1"]}})");
  append(R"({"step":0,"skipped":"nan","detail":"loss inf","samples":4})"
         "\n");
  add_steps(1, 3, "\"drift\":{\"left\":true,\"warning\":\"longer clips\"},\"fed\":0.25,");
  append("{\"step\":3,\"loss\":null,\"steps\":6,\"step_s\":0.1,\"data_wait_s\":0.09}\n");
  RunWatch watch(folder());
  const std::optional<RunProgress> progress = watch.look(system_clock::now());
  EXPECT_EQ(progress->steps, 6);
  EXPECT_TRUE(warns_of(*progress, "1 step was skipped, the last is step 0 (nan): loss inf"));
  EXPECT_TRUE(warns_of(*progress, "the loss of step 3 is not a number"));
  EXPECT_TRUE(warns_of(*progress, "ranks wait for samples 31 %"));
  EXPECT_TRUE(warns_of(*progress, "feeds decoded 0 %"));
  EXPECT_TRUE(warns_of(*progress, "longer clips"));
}

TEST_F(WatchedRun, OfUnknownLengthIsNotRunning) {
  write("config.json", R"({"epochs": 2})");
  add_steps(0, 1);
  RunWatch watch(folder());
  EXPECT_EQ(watch.look(system_clock::now())->state, RunState::kOver);
}

TEST_F(WatchedRun, RefusesOtherFolders) {
  EXPECT_THROW(RunWatch(folder() / "none"), InvalidInput);
  std::filesystem::create_directory(folder() / "empty");
  EXPECT_THROW(RunWatch(folder() / "empty"), InvalidInput);
  write("plan.json", R"({"lanes": [[["vision"]]]})");
  RunWatch watch(folder());
  EXPECT_THROW(watch.look(system_clock::now()), InvalidInput);
}

TEST(LossCurve, KeepsMeansOfEquallyManySteps) {
  LossCurve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.add(i);
  }
  const std::vector<double> points = curve.points();
  ASSERT_LE(points.size(), LossCurve::kMostPoints);
  ASSERT_GE(points.size(), LossCurve::kMostPoints / 2);
  EXPECT_DOUBLE_EQ(points[0], 15.5);  // of steps 0 to 31
  EXPECT_DOUBLE_EQ(points[1], 47.5);
}

}  // namespace
}  // namespace entrain
