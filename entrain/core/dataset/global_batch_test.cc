#include "entrain/core/dataset/global_batch.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
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

// One in eight weighs up to fifty times the others.
std::vector<std::int64_t> some_heavy(int count) {
  Rng rng(5);
  std::vector<std::int64_t> weights(static_cast<std::size_t>(count));
  for (std::int64_t& weight : weights) {
    weight = static_cast<std::int64_t>(rng.below(8) == 0 ? 40 + rng.below(200) : 1 + rng.below(8));
  }
  return weights;
}

// Step of each sample within its epoch; -1 where the epoch leaves it out.
std::vector<std::int64_t> steps_of(GlobalBatchSampler& sampler, std::int64_t epoch, int samples) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(samples), -1);
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    for (const int sample : sampler.batch(epoch * sampler.steps_per_epoch() + step)) {
      EXPECT_EQ(result[static_cast<std::size_t>(sample)], -1) << "sample " << sample << " twice";
      result[static_cast<std::size_t>(sample)] = step;
    }
  }
  return result;
}

TEST(GlobalBatch, HoldsSamplesWithinTheirWindowAndDrawsEachOnce) {
  constexpr int kSamples = 157;  // 15 steps of 10: windows of 4, 4, 4 and 3, or three of 5
  const std::vector<std::int64_t> weights = some_heavy(kSamples);
  for (const auto& [window, last] : {std::pair(4, LastBatch::kDrop),
                                     std::pair(4, LastBatch::kKeep),
                                     std::pair(5, LastBatch::kKeep)}) {
    GlobalBatchSampler drawn(kSamples, 10, 1, last);
    GlobalBatchSampler held(kSamples, 10, 1, last, {window, weights});
    ASSERT_EQ(held.steps_per_epoch(), drawn.steps_per_epoch());
    int moved = 0;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<std::int64_t> before = steps_of(drawn, epoch, kSamples);
      const std::vector<std::int64_t> after = steps_of(held, epoch, kSamples);
      for (std::size_t sample = 0; sample < before.size(); ++sample) {
        EXPECT_EQ(before[sample] < 0, after[sample] < 0);
        EXPECT_EQ(before[sample] / window, after[sample] / window) << "another window";
        moved += before[sample] != after[sample] ? 1 : 0;
        if (before[sample] == 15) {
          EXPECT_EQ(after[sample], 15) << "the smaller last batch stays as drawn";
        }
      }
      for (std::int64_t step = 0; step < drawn.steps_per_epoch(); ++step) {
        EXPECT_EQ(held.batch(epoch * drawn.steps_per_epoch() + step).size(),
                  drawn.batch(epoch * drawn.steps_per_epoch() + step).size());
      }
    }
    EXPECT_GT(moved, 20);
  }
}

TEST(GlobalBatch, HeldBatchesDependOnTheStepAlone) {
  const std::vector<std::int64_t> weights = some_heavy(157);
  const Hold hold{4, weights};
  GlobalBatchSampler straight(157, 10, 9, LastBatch::kDrop, hold);
  std::vector<std::vector<int>> batches;
  for (std::int64_t step = 0; step < 45; ++step) {
    batches.push_back(straight.batch(step));
  }
  GlobalBatchSampler jumping(157, 10, 9, LastBatch::kDrop, hold);
  for (std::int64_t i = 0; i < 45; ++i) {
    const std::int64_t step = i * 17 % 45;  // into the middle of windows, over epochs and back
    EXPECT_EQ(jumping.batch(step), batches[static_cast<std::size_t>(step)]);
    EXPECT_EQ(draw_study_rows(157, 10, 9, step, hold), batches[static_cast<std::size_t>(step)]);
  }
}

TEST(GlobalBatch, WithoutHoldIsAsDrawn) {
  const std::vector<std::int64_t> weights = some_heavy(157);
  GlobalBatchSampler drawn(157, 10, 9);
  GlobalBatchSampler off(157, 10, 9, LastBatch::kDrop, {1, weights});
  for (std::int64_t step = 0; step < 30; ++step) {
    EXPECT_EQ(off.batch(step), drawn.batch(step));
  }
  error_of<InvalidInput>([&] { GlobalBatchSampler(157, 10, 9, LastBatch::kDrop, {0, weights}); });
  error_of<InvalidInput>([&] { GlobalBatchSampler(157, 10, 9, LastBatch::kDrop, {257, weights}); });
}

TEST(DrawStudyRows, HoldsWindowsThatAreDrawnWithReplacement) {
  std::vector<std::int64_t> weights(33, 2);
  for (std::size_t i = 0; i < weights.size(); i += 8) {
    weights[i] = 100;
  }
  std::vector<int> drawn;
  std::vector<int> held;
  bool moved = false;
  for (std::int64_t step = 6; step < 9; ++step) {
    const std::vector<int> before = draw_study_rows(33, 10, 5, step);
    const std::vector<int> after = draw_study_rows(33, 10, 5, step, {3, weights});
    ASSERT_EQ(after.size(), 10U);
    moved = moved || before != after;
    drawn.insert(drawn.end(), before.begin(), before.end());
    held.insert(held.end(), after.begin(), after.end());
  }
  EXPECT_TRUE(moved);
  EXPECT_TRUE(std::is_permutation(held.begin(), held.end(), drawn.begin(), drawn.end()));
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
  const std::vector<int> rows = draw_study_rows(20, 5, 9, 3);
  EXPECT_EQ(rows, GlobalBatchSampler(20, 5, 9).batch(3));
}

TEST(DrawStudyBatch, DrawsWithReplacementFromFewer) {
  const std::vector<int> rows = draw_study_rows(5, 6, 3, 0);
  EXPECT_EQ(rows, (std::vector<int>{3, 2, 2, 3, 3, 3}));
  EXPECT_EQ(unique_names({"d", "c", "c", "d", "d", "d"}),
            (std::vector<std::string>{"d", "c", "c~2", "d~2", "d~3", "d~4"}));
  error_of<InvalidInput>([&] { draw_study_rows(5, 0, 3, 0); });
  error_of<InvalidInput>([&] { draw_study_rows(5, 1, 3, -1); });
}

}  // namespace
}  // namespace entrain
