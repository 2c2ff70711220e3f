#include "entrain/core/report/run_rows.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr const char* kStep =
    R"({"step":0,"loss":2.5,"samples":4,"llm_tokens":100,"step_s":0.5,"predicted_step_s":0.4,)"
    R"("lower_bound_s":0.3,"bubble":0.25,"data_wait_s":0.01,"deferred":2,"new_key":[1],)"
    R"("drift":{"left":true,"warning":"other images"},)"
    R"("lanes":[{"replica":0,"lane":1,"busy_s":0.2,"predicted_busy_s":0.1,"peak_bytes":77}]})";

class RunRowsFile : public ::testing::Test {
 protected:
  RunRowsFile()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
    std::filesystem::remove(path());
  }
  ~RunRowsFile() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path path() const { return folder_ / "metrics.jsonl"; }
  void append(const std::string& text) const { std::ofstream(path(), std::ios::app) << text; }
  [[nodiscard]] std::string failure() const {
    try {
      read_run_rows(path());
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(RunRowsFile, HoldsStepsSkipsAndValidations) {
  append(std::string(kStep) + "\n");
  append("{\"step\":1,\"validation_loss\":2.25}\n");
  append(R"({"step":1,"skipped":"nan","detail":"loss of x","skipped_steps":1,"samples":4})"
         "\n{\"step\":2,\"loss\":null}\n");
  const RunRows rows = read_run_rows(path());
  ASSERT_EQ(rows.steps.size(), 3U);
  EXPECT_EQ(rows.steps[0].loss, 2.5);
  EXPECT_EQ(rows.steps[0].predicted_step_s, 0.4);
  EXPECT_EQ(rows.steps[0].lower_bound_s, 0.3);
  EXPECT_EQ(rows.steps[0].llm_tokens, 100);
  EXPECT_EQ(rows.steps[0].grad_norm, std::nullopt);
  EXPECT_EQ(rows.steps[0].drift_warning, "other images");
  ASSERT_EQ(rows.steps[0].lanes.size(), 1U);
  EXPECT_EQ(rows.steps[0].lanes[0].lane, 1);
  EXPECT_EQ(rows.steps[0].lanes[0].peak_bytes, 77);
  EXPECT_EQ(rows.steps[0].lanes[0].processor_s, std::nullopt);
  EXPECT_EQ(rows.steps[1].skipped, "nan");
  EXPECT_EQ(rows.steps[1].detail, "loss of x");
  EXPECT_EQ(rows.steps[2].loss, std::nullopt);
  ASSERT_EQ(rows.validations.size(), 1U);
  EXPECT_EQ(rows.validations[0].loss, 2.25);
  EXPECT_EQ(rows.cut_lines, 0);
}

TEST_F(RunRowsFile, LeavesOutACutLastLine) {
  append(std::string(kStep) + "\n{\"step\":1,\"lo");
  const RunRows rows = read_run_rows(path());
  EXPECT_EQ(rows.steps.size(), 1U);
  EXPECT_EQ(rows.cut_lines, 1);
}

TEST_F(RunRowsFile, RefusesOtherFilesByLine) {
  append(std::string(kStep) + "\nstep,loss\n");
  EXPECT_NE(failure().find("metrics.jsonl line 2: not valid JSON"), std::string::npos);
  std::filesystem::remove(path());
  append("[1]\n");
  EXPECT_NE(failure().find("line 1: not a row of a run's metrics, but a list"), std::string::npos);
  std::filesystem::remove(path());
  append("{\"step\":3,\"train_loss\":1}\n");
  EXPECT_NE(failure().find("line 1: not a row of a run's metrics: those have"), std::string::npos);
  std::filesystem::remove(path());
  append("{\"step\":3,\"loss\":\"low\"}\n");
  EXPECT_NE(failure().find("line 1: loss"), std::string::npos);
  std::filesystem::remove(path());
  EXPECT_NE(failure().find("does not exist"), std::string::npos);
  std::filesystem::create_directory(path());
  EXPECT_NE(failure().find("is not a file"), std::string::npos);
}

TEST_F(RunRowsFile, ReaderReadsWhatWasAppended) {
  append(std::string(kStep) + "\n{\"step\":1,");
  RunRowsReader reader(path());
  EXPECT_EQ(reader.read().rows.steps.size(), 1U);
  EXPECT_TRUE(reader.read().rows.steps.empty());
  append("\"loss\":1}\n{\"step\":2,\"loss\":1}\n");
  const RunRowsReader::News news = reader.read();
  ASSERT_EQ(news.rows.steps.size(), 2U);
  EXPECT_EQ(news.rows.steps[0].step, 1);
  EXPECT_EQ(news.rows.cut_lines, 0);
  EXPECT_FALSE(news.replaced);
}

TEST_F(RunRowsFile, ReaderBeginsAgainWithAReplacedFile) {
  append(std::string(kStep) + "\n" + kStep + "\n");
  RunRowsReader reader(path());
  reader.read();
  std::filesystem::resize_file(path(), 0);
  append("{\"step\":0,\"loss\":9}\n");
  const RunRowsReader::News news = reader.read();
  EXPECT_TRUE(news.replaced);
  ASSERT_EQ(news.rows.steps.size(), 1U);
  EXPECT_EQ(news.rows.steps[0].loss, 9);
}

TEST_F(RunRowsFile, BlocksCutNoRow) {
  std::string row = kStep;
  row.insert(1, "\"pad\":\"" + std::string(999'983, 'x') + "\",");
  for (int i = 0; i < 10; ++i) {
    append(row + "\n");
  }
  EXPECT_EQ(read_run_rows(path()).steps.size(), 10U);
}

}  // namespace
}  // namespace entrain
