// Steps that several ranks of a lane read: decoded once, whatever each of them does.
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "entrain/engine/data/read_ahead.h"

#include "tests/oracle/engine/small_samples.h"

namespace entrain::engine {
namespace {

class SharedReadAheadTest : public oracle::SmallSamplesTest {
 protected:
  static StepNeeds needs_of_step(std::int64_t step, int readers = 2, int lane = 0) {
    StepNeeds needs = all_needs();
    needs.step = step;
    needs.readers = readers;
    needs.lane = lane;
    return needs;
  }
  void take(StepData& data, const SegmentNeed& need) const {
    ASSERT_NEAR(red_of(data.segment(need.module, need.sample, need.segment)),
                expected_red(need.sample, need.segment),
                1e-5F);
  }
};

TEST_F(SharedReadAheadTest, DecodesOnceAndGivesEachReaderTheSameMemory) {
  ReadAhead reader(index_, model_, {});
  const auto first = reader.queue(needs_of_step(4));
  const auto second = reader.queue(needs_of_step(4));
  const std::int64_t images = std::ssize(all_needs().segments);
  for (const SegmentNeed& need : all_needs().segments) {
    const SegmentData a = first->segment(need.module, need.sample, need.segment);
    const SegmentData b = second->segment(need.module, need.sample, need.segment);
    EXPECT_EQ(a.input.const_data_ptr(), b.input.const_data_ptr());
    EXPECT_NEAR(red_of(a), expected_red(need.sample, need.segment), 1e-5F);
  }
  for (int sample = 0; sample < 6; ++sample) {
    EXPECT_EQ(first->text(sample).ids, second->text(sample).ids);
    EXPECT_EQ(second->kind(sample), "small");
  }
  EXPECT_EQ(first->times().images, images);
  EXPECT_EQ(second->times().images, 0);
  EXPECT_EQ(second->times().decoding.count(), 0);
  EXPECT_EQ(first->times().pieces, second->times().pieces);
  EXPECT_EQ(reader.ready_bytes(), 0);
}

TEST_F(SharedReadAheadTest, OtherStepsLanesAndLateReadersHaveTheirOwn) {
  ReadAhead reader(index_, model_, {});
  const auto first = reader.queue(needs_of_step(4));
  const auto other_step = reader.queue(needs_of_step(5));
  const auto other_lane = reader.queue(needs_of_step(4, 2, /*lane=*/1));
  const auto alone = reader.queue(needs_of_step(4, /*readers=*/1));
  const auto second = reader.queue(needs_of_step(4));
  const auto third = reader.queue(needs_of_step(4));  // one more than there are readers
  std::vector<SegmentData> kept;                      // so that no memory is used twice
  kept.push_back(first->segment(0, 0, 0));
  const void* shared = kept.back().input.const_data_ptr();
  EXPECT_EQ(second->segment(0, 0, 0).input.const_data_ptr(), shared);
  for (const auto& data : {other_step, other_lane, alone, third}) {
    kept.push_back(data->segment(0, 0, 0));
    EXPECT_NE(kept.back().input.const_data_ptr(), shared);
    EXPECT_NEAR(red_of(kept.back()), expected_red(0, 0), 1e-5F);
  }
}

TEST_F(SharedReadAheadTest, HoldsAPieceUntilItsLastReaderHasItOrHasGone) {
  ReadAheadOptions options;
  options.memory_bytes = bytes_of(all_needs(), 7);
  ReadAhead reader(index_, model_, options);
  auto first = reader.queue(needs_of_step(0));
  auto second = reader.queue(needs_of_step(0));
  wait_until_ready(reader, options.memory_bytes);
  const std::int64_t bytes = bytes_of(all_needs(), 1);
  take(*first, {0, 0, 0});
  EXPECT_EQ(reader.ready_bytes(), options.memory_bytes);
  take(*second, {0, 0, 0});
  EXPECT_EQ(reader.ready_bytes(), options.memory_bytes - bytes);
  EXPECT_THROW(first->segment(0, 0, 0), InternalError);
  take(*first, {0, 1, 0});
  second.reset();  // the first goes on; what it has taken is nobody's any more
  EXPECT_EQ(reader.ready_bytes(), options.memory_bytes - bytes_of(all_needs(), 2));
  take(*first, {0, 1, 1});
  first.reset();
  EXPECT_EQ(reader.ready_bytes(), 0);
  // Nobody joins a step that all have left.
  first = reader.queue(needs_of_step(1));
  first.reset();
  second = reader.queue(needs_of_step(1));
  take(*second, {0, 4, 0});
}

// Readers at their own pace, on threads of their own, some of which leave midway, in any order of
// use, checked or not, with memory for nothing or for half of a step.
TEST_F(SharedReadAheadTest, ReadersGoTheirOwnWays) {
  Rng rng(5);
  for (int turn = 0; turn < 60; ++turn) {
    ReadAheadOptions options;
    options.threads = 1 + turn % 3;
    options.check_steps = turn % 2 == 1;
    options.memory_bytes = turn % 4 < 2 ? 1 : bytes_of(all_needs(), 4);
    ReadAhead reader(index_, model_, options);
    const int readers = 2 + turn % 2;
    std::vector<std::future<void>> ends;
    for (int rank = 0; rank < readers; ++rank) {
      ends.push_back(std::async(std::launch::async, [&, seed = rng.below(1U << 20U)] {
        Rng own(seed);
        for (int step = 0; step < 4; ++step) {
          const auto data = reader.queue(needs_of_step(step, readers));
          if (options.check_steps) {
            EXPECT_EQ(data->problem(), std::nullopt);
          }
          std::vector<SegmentNeed> order = all_needs().segments;
          own.shuffle(std::span(order));
          order.resize(own.below(3) == 0 ? 3 : order.size());
          for (const SegmentNeed& need : order) {
            take(*data, need);
          }
          EXPECT_EQ(data->kind(static_cast<int>(own.below(6))), "small");
        }
      }));
    }
    for (std::future<void>& end : ends) {
      end.get();
    }
    EXPECT_EQ(reader.ready_bytes(), 0);
  }
}

}  // namespace
}  // namespace entrain::engine
