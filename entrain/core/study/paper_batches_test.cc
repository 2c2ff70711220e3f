#include "entrain/core/study/paper_batches.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

// Encoder and LLM work of samples whose ratio varies around 3.
WorkTimes mixed_work() {
  Rng rng(1);
  WorkTimes work(2);
  for (int sample = 0; sample < 4000; ++sample) {
    work[0].push_back(static_cast<std::int64_t>(1000 + rng.below(58'000)));
    work[1].push_back(10'000);
  }
  return work;
}

TEST(PaperBatches, EverySampleAlikeAsksForOneSplit) {
  const WorkTimes work = {std::vector<std::int64_t>(4000, 30), std::vector<std::int64_t>(4000, 10)};
  const Json splits = batch_splits(work, 8, 512);
  EXPECT_EQ(splits["split"], "6:2");
  EXPECT_EQ(splits["b_min"], 1);
  EXPECT_EQ(splits["fresh_differ"], 0);
  const Json ratios = ratios_by_size(work);
  EXPECT_DOUBLE_EQ(ratios["all"], 3.0);
  EXPECT_DOUBLE_EQ(ratios["sizes"][0]["p95"], 3.0);
}

TEST(PaperBatches, SingleSamplesSpreadAndBatchesDoNot) {
  const WorkTimes work = mixed_work();
  const Json splits = batch_splits(work, 8, 512);
  EXPECT_GT(splits["sizes"][0]["splits"].size(), 1U);
  EXPECT_GT(splits["b_min"].get<int>(), 1);
  EXPECT_EQ(splits["fresh_batches"], 1000);
  EXPECT_LE(splits["fresh_differ"].get<int>(), 50) << "what b_min certifies";
  const Json sizes = ratios_by_size(work)["sizes"];
  const auto width = [](const Json& size) {
    return size["p95"].get<double>() / size["p5"].get<double>();
  };
  EXPECT_GT(width(sizes[0]), 5);
  EXPECT_LT(width(sizes.back()), 1.1);
}

}  // namespace
}  // namespace entrain
