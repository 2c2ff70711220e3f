#include "entrain/core/study/epoch_order.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/global_batch.h"

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

AuditRequest order_request() {
  AuditRequest request;
  request.ranks = 2;
  request.microbatches = 2;
  request.search_steps = 500;
  return request;
}

Study order_study(const oracle::StudyFiles& files, int global_batch = 12) {
  StudyInputs inputs = files.index_inputs();
  inputs.global_batch = global_batch;
  return load_study(inputs);
}

std::vector<int> rows_of(const std::vector<std::vector<int>>& step) {
  std::vector<int> rows;
  for (const std::vector<int>& cell : step) {
    rows.insert(rows.end(), cell.begin(), cell.end());
  }
  return rows;
}

// The int64 of an array after its header.
std::vector<std::int64_t> values_of(const std::string& npy) {
  const std::size_t begin = npy.find('\n') + 1;
  EXPECT_EQ(begin % 64, 0U);
  std::vector<std::int64_t> values((npy.size() - begin) / sizeof(std::int64_t));
  std::memcpy(values.data(), npy.data() + begin, npy.size() - begin);
  return values;
}

TEST(BalancedEpoch, HasEverySampleOnceAndOtherOrdersInOtherEpochs) {
  const oracle::StudyFiles files;  // 40 samples
  const Study study = order_study(files);
  const EpochOrder order = balanced_epoch(study, order_request(), 0);
  ASSERT_EQ(order.steps.size(), 3U);
  std::set<int> seen;
  for (const auto& step : order.steps) {
    ASSERT_EQ(step.size(), 4U);
    EXPECT_EQ(rows_of(step).size(), 12U);
    for (const std::vector<int>& cell : step) {
      EXPECT_FALSE(cell.empty());
      seen.insert(cell.begin(), cell.end());
    }
  }
  EXPECT_EQ(seen.size(), 36U);
  EXPECT_EQ(balanced_epoch(study, order_request(), 0).steps, order.steps);
  EXPECT_NE(balanced_epoch(study, order_request(), 1).steps, order.steps);
}

TEST(BalancedEpoch, TrainsTheSameSamplesInAStepAtAnyRanks) {
  const oracle::StudyFiles files;
  const Study study = order_study(files);
  AuditRequest other = order_request();
  other.ranks = 4;
  other.microbatches = 1;
  const EpochOrder two = balanced_epoch(study, order_request(), 3);
  const EpochOrder four = balanced_epoch(study, other, 3);
  for (std::size_t step = 0; step < two.steps.size(); ++step) {
    std::vector<int> mine = rows_of(two.steps[step]);
    std::vector<int> theirs = rows_of(four.steps[step]);
    std::sort(mine.begin(), mine.end());
    std::sort(theirs.begin(), theirs.end());
    EXPECT_EQ(mine, theirs);
  }
}

TEST(BalancedEpoch, HasTheStepsOfTheDrawnOrder) {
  const oracle::StudyFiles files;
  const Study study = order_study(files);
  std::vector<int> drawn = epoch_rows(40, study.inputs.seed, 2);
  std::vector<int> second = rows_of(balanced_epoch(study, order_request(), 2).steps[1]);
  std::sort(second.begin(), second.end());
  std::sort(drawn.begin() + 12, drawn.begin() + 24);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), drawn.begin() + 12));
  EXPECT_NE(step_seed(0, 1, 0), step_seed(0, 0, 1));
}

TEST(BalancedEpoch, RefusesWhatFillsNoStep) {
  const oracle::StudyFiles files;
  EXPECT_THROW(balanced_epoch(order_study(files, 44), order_request(), 0), InvalidInput);
  AuditRequest request = order_request();
  request.ranks = 5;
  EXPECT_THROW(balanced_epoch(order_study(files), request, 0), InvalidInput);
  request = order_request();
  request.max_tokens = 1;
  EXPECT_THROW(balanced_epoch(order_study(files), request, 0), NothingFits);
}

TEST(OrderFiles, AreAsTheirReadersTakeThem) {
  const EpochOrder order{2, 1, {{{3, 0}, {1}}, {{2}, {5, 4}}}};
  EXPECT_EQ(order_lines(order, {"a", "b", "c", "d", "e", "f"}),
            "{\"step\":0,\"microbatch\":0,\"rank\":0,\"samples\":[\"d\",\"a\"]}\n"
            "{\"step\":0,\"microbatch\":0,\"rank\":1,\"samples\":[\"b\"]}\n"
            "{\"step\":1,\"microbatch\":0,\"rank\":0,\"samples\":[\"c\"]}\n"
            "{\"step\":1,\"microbatch\":0,\"rank\":1,\"samples\":[\"f\",\"e\"]}\n");
  const std::string npy = order_npy(order);
  EXPECT_NE(npy.find("'shape': (6, 4)"), std::string::npos);
  EXPECT_EQ(values_of(npy), (std::vector<std::int64_t>{0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 1,
                                                       1, 0, 0, 2, 1, 0, 1, 5, 1, 0, 1, 4}));
}

TEST(PresetPacks, GiveEveryRankItsMicrobatches) {
  const EpochOrder order{2, 1, {{{3, 0}, {1}}, {{2}, {5, 4}}}};
  const PresetPacks packs = preset_packs(order, {10, 11, 12, 13, 14, 15}, "train.jsonl");
  EXPECT_EQ(values_of(packs.boundaries), (std::vector<std::int64_t>{0, 2, 3, 4, 6}));
  const std::vector<std::int64_t> slices = values_of(packs.samples);
  ASSERT_EQ(slices.size(), 36U);
  EXPECT_EQ(std::vector<std::int64_t>(slices.begin(), slices.begin() + 6),
            (std::vector<std::int64_t>{0, 3, -1, -1, 0, 13}));
  EXPECT_EQ(values_of(packs.sampler_order), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(packs.paths, "[\"train.jsonl\"]\n");
}

}  // namespace
}  // namespace entrain
