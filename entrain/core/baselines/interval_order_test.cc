#include "entrain/core/baselines/interval_order.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

// `forward` on the first stage; every other stage takes `rest` for every microbatch.
ChainTimes chain_of(const std::vector<std::int64_t>& forward,
                    int stages,
                    std::int64_t rest,
                    std::int64_t backward) {
  ChainTimes times;
  for (int stage = 0; stage < stages; ++stage) {
    times.forward.emplace_back(forward.size(), rest);
    times.backward.emplace_back(forward.size(), backward);
  }
  times.forward[0] = forward;
  return times;
}

TEST(IntervalOrder, StartsWithTheSmallestAndKeepsTheNextForTheEnd) {
  // Three stages: 1 first; 2 and 3 are reserved, the larger before the smaller.
  const std::vector<int> order = interval_order(chain_of({5, 3, 9, 1, 2, 7}, 3, 4, 4));
  EXPECT_EQ(order.front(), 3);
  EXPECT_EQ(std::vector<int>(order.end() - 2, order.end()), (std::vector<int>{1, 4}));
}

TEST(IntervalOrder, FillsTheFirstIntervalThenOneATurn) {
  // Two stages; the second takes 6 forward and 2 backward, so that the first gradient is 8 after
  // the first forward: size 8 fills it. Sizes 1 (index 0) first, 2 (index 1) last.
  ChainTimes times = chain_of({1, 2, 4, 8, 6, 12}, 2, 6, 2);
  // Turns of the first stage (ends): F0 1, F3 9, B0 max(9, 9) + 2 = 11.
  // Second stage: F0 7, B0 9, F3 max(9, 9) + 6 = 15, B3 17: the interval is 17 - 11 = 6: index 4.
  // F4 ends at 17, B3 at 19; second stage: F4 23, B4 25: interval 6: 4 (index 2) is closest.
  // Then 12 (index 5).
  EXPECT_EQ(interval_order(times), (std::vector<int>{0, 3, 4, 2, 5, 1}));
}

TEST(IntervalOrder, SortsBySizeWithoutAPipeline) {
  EXPECT_EQ(interval_order(chain_of({5, 3, 9, 1}, 1, 0, 1)), (std::vector<int>{3, 1, 0, 2}));
  EXPECT_EQ(interval_order(chain_of({5, 3}, 4, 1, 1)), (std::vector<int>{1, 0}));
}

TEST(IntervalOrder, IsAPermutation) {
  Rng rng(3, 1);
  for (int i = 0; i < 500; ++i) {
    const int stages = 1 + static_cast<int>(rng.below(6));
    const auto count = static_cast<std::size_t>(1 + rng.below(12));
    ChainTimes times;
    for (int stage = 0; stage < stages; ++stage) {
      times.forward.emplace_back();
      times.backward.emplace_back();
      for (std::size_t k = 0; k < count; ++k) {
        times.forward.back().push_back(static_cast<std::int64_t>(rng.below(10)));
        times.backward.back().push_back(static_cast<std::int64_t>(rng.below(10)));
      }
    }
    std::vector<int> order = interval_order(times);
    std::sort(order.begin(), order.end());
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(order, all);
  }
}

}  // namespace
}  // namespace entrain
