#include "entrain/core/dataset/global_batch.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

std::vector<SampleSizes> named_samples(int count) {
  std::vector<SampleSizes> samples(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    samples[static_cast<std::size_t>(i)].id = std::string(1, static_cast<char>('a' + i));
  }
  return samples;
}

std::vector<std::string> ids(const std::vector<SampleSizes>& samples) {
  std::vector<std::string> names;
  for (const SampleSizes& sample : samples) {
    names.push_back(sample.id);
  }
  return names;
}

// Expected values were computed by a program of its own in another language.
TEST(GlobalBatch, MatchesGoldenValues) {
  GlobalBatchSampler sampler(10, 4, 7);
  EXPECT_EQ(sampler.batch(0), (std::vector<int>{5, 0, 2, 9}));
  EXPECT_EQ(sampler.batch(1), (std::vector<int>{4, 3, 1, 7}));
  EXPECT_EQ(sampler.batch(2), (std::vector<int>{2, 5, 3, 4}));
  EXPECT_EQ(sampler.batch(3), (std::vector<int>{9, 8, 1, 0}));
}

TEST(GlobalBatch, TakesEverySampleAtMostOnceAnEpoch) {
  GlobalBatchSampler sampler(103, 10, 1);
  ASSERT_EQ(sampler.steps_per_epoch(), 10);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int> seen;
    for (std::int64_t step = epoch * 10; step < (epoch + 1) * 10; ++step) {
      for (const int sample : sampler.batch(step)) {
        EXPECT_TRUE(seen.insert(sample).second) << "sample " << sample << " in step " << step;
        EXPECT_TRUE(sample >= 0 && sample < 103);
      }
    }
    EXPECT_EQ(seen.size(), 100U);
  }
}

TEST(GlobalBatch, KeepsTheLastBatchOfAnEpochSmaller) {
  GlobalBatchSampler kept(10, 4, 7, LastBatch::kKeep);
  EXPECT_EQ(kept.steps_per_epoch(), 3);
  EXPECT_EQ(kept.last_batch(), 2);
  EXPECT_EQ(kept.left_out_per_epoch(), 0);
  // The first batches of an epoch are those that dropping gives.
  EXPECT_EQ(kept.batch(1), (std::vector<int>{4, 3, 1, 7}));
  EXPECT_EQ(kept.batch(2), (std::vector<int>{8, 6}));
  EXPECT_EQ(kept.batch(3), (std::vector<int>{2, 5, 3, 4}));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int> seen;
    for (std::int64_t step = 3 * epoch; step < 3 * epoch + 3; ++step) {
      const std::vector<int> batch = GlobalBatchSampler(10, 4, 7, LastBatch::kKeep).batch(step);
      EXPECT_EQ(batch.size(), step % 3 == 2 ? 2U : 4U);
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_EQ(seen.size(), 10U);
  }
}

TEST(GlobalBatch, SaysWhatAnEpochLeavesOut) {
  EXPECT_EQ(GlobalBatchSampler(10, 4, 7).left_out_per_epoch(), 2);
  EXPECT_EQ(GlobalBatchSampler(10, 4, 7).last_batch(), 4);
  GlobalBatchSampler even(8, 4, 7, LastBatch::kKeep);
  EXPECT_EQ(even.steps_per_epoch(), 2);
  EXPECT_EQ(even.last_batch(), 4);
  EXPECT_EQ(even.batch(1).size(), 4U);
}

TEST(GlobalBatch, ResumesFromTheStepAlone) {
  GlobalBatchSampler straight(37, 5, 9);
  for (std::int64_t step = 0; step < 30; ++step) {
    GlobalBatchSampler resumed(37, 5, 9);
    EXPECT_EQ(resumed.batch(step), straight.batch(step));
  }
  EXPECT_EQ(straight.batch(3), GlobalBatchSampler(37, 5, 9).batch(3));
}

TEST(GlobalBatch, DiffersBySeedAndEpoch) {
  EXPECT_NE(GlobalBatchSampler(50, 50, 1).batch(0), GlobalBatchSampler(50, 50, 2).batch(0));
  EXPECT_NE(GlobalBatchSampler(50, 50, 1).batch(0), GlobalBatchSampler(50, 50, 1).batch(1));
}

TEST(GlobalBatch, RefusesFewerSamplesThanABatch) {
  const std::string message = error_of<InvalidInput>([] { GlobalBatchSampler(3, 4, 0); });
  EXPECT_NE(message.find('3'), std::string::npos);
  EXPECT_NE(message.find('4'), std::string::npos);
  error_of<InvalidInput>([] { GlobalBatchSampler(3, 0, 0); });
  error_of<InvalidInput>([] { GlobalBatchSampler(3, 1, 0).batch(-1); });
}

TEST(DrawWithReplacement, MatchesGoldenValuesAndMarksRepeats) {
  const std::vector<SampleSizes> samples = named_samples(5);
  EXPECT_EQ(ids(draw_with_replacement(samples, 6, 3, 0)),
            (std::vector<std::string>{"d", "c", "c~2", "d~2", "d~3", "d~4"}));
  EXPECT_EQ(ids(draw_with_replacement(samples, 6, 3, 5)),
            (std::vector<std::string>{"d", "b", "d~2", "b~2", "e", "a"}));
}

TEST(DrawWithReplacement, RefusesNothingToDrawFrom) {
  error_of<InvalidInput>([] { draw_with_replacement({}, 1, 0, 0); });
  error_of<InvalidInput>([] { draw_with_replacement(named_samples(2), 0, 0, 0); });
}

TEST(DrawStudyBatch, DrawsAsTrainingDoesFromFourBatchesOn) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back(concat("s", i));
  }
  const BatchDraw draw = draw_study_batch(names, 5, 9, 3);
  EXPECT_EQ(draw.rows, GlobalBatchSampler(20, 5, 9).batch(3));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(draw.ids[i], concat("s", draw.rows[i]));
  }
}

TEST(DrawStudyBatch, DrawsWithReplacementFromFewer) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  const BatchDraw draw = draw_study_batch(names, 6, 3, 0);
  EXPECT_EQ(draw.ids, (std::vector<std::string>{"d", "c", "c~2", "d~2", "d~3", "d~4"}));
  EXPECT_EQ(draw.rows, (std::vector<int>{3, 2, 2, 3, 3, 3}));
  error_of<InvalidInput>([&] { draw_study_batch(names, 0, 3, 0); });
  error_of<InvalidInput>([&] { draw_study_batch(names, 1, 3, -1); });
}

}  // namespace
}  // namespace entrain
