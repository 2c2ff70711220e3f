#include "entrain/core/study/further_batches.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

std::int64_t tokens_of(const std::vector<SampleWork>& batch) {
  std::int64_t tokens = 0;
  for (const SampleWork& sample : batch) {
    tokens += sample.llm_tokens;
  }
  return tokens;
}

std::int64_t largest_of(const std::vector<SampleWork>& batch) {
  std::int64_t tokens = 0;
  for (const SampleWork& sample : batch) {
    tokens = std::max(tokens, sample.llm_tokens);
  }
  return tokens;
}

TEST(FurtherBatchesOfAStudy, AreTheRunsNextAndTheMostDemandingBehind) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.index_inputs());
  const FurtherBatches further = further_batches(study, 3, 5);
  EXPECT_EQ(further.first, 3);
  EXPECT_EQ(further.in_row, 5);
  EXPECT_EQ(further.screened, 45);
  std::vector<std::int64_t> steps = further.steps;
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ(std::adjacent_find(steps.begin(), steps.end()), steps.end());
  ASSERT_GE(steps.size(), 5U);
  std::int64_t most = 0;
  std::int64_t largest = 0;
  for (std::int64_t step = 3; step < 53; ++step) {
    const std::vector<SampleWork> batch = draw_batch(study, step).work;
    const bool in_row = step < 8;
    const bool chosen = std::binary_search(steps.begin(), steps.end(), step);
    EXPECT_TRUE(!in_row || chosen) << step;
    if (chosen) {
      EXPECT_EQ(further.draw(step), batch) << step;
      most = std::max(most, tokens_of(batch));
      largest = std::max(largest, largest_of(batch));
    }
  }
  for (std::int64_t step = 3; step < 53; ++step) {
    const std::vector<SampleWork> batch = draw_batch(study, step).work;
    EXPECT_LE(tokens_of(batch), most);
    EXPECT_LE(largest_of(batch), largest);
  }
  // Who leads in something comes before who leads in nothing.
  const auto measures = static_cast<std::ptrdiff_t>(2 * study.model.num_modules());
  EXPECT_TRUE(
      std::any_of(further.steps.begin(),
                  further.steps.begin() + std::min(measures, std::ssize(further.steps)),
                  [&](std::int64_t step) { return tokens_of(further.draw(step)) == most; }));
  EXPECT_TRUE(std::any_of(further.largest.begin(),
                          further.largest.end(),
                          [&](const SampleWork& sample) { return sample.llm_tokens == largest; }));
}

TEST(FurtherBatchesOfAStudy, AreNoneWhereNoneAreAskedFor) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.index_inputs());
  const FurtherBatches further = further_batches(study, 3, 0);
  EXPECT_EQ(further.count(), 0);
  EXPECT_TRUE(further.largest.empty());
}

TEST(FurtherBatchesOfAStudy, AreEqualForEqualStudies) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.index_inputs());
  EXPECT_EQ(further_batches(study, 8, 20).steps, further_batches(study, 8, 20).steps);
}

}  // namespace
}  // namespace entrain
