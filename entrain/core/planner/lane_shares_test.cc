#include "entrain/core/planner/lane_shares.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

using Work = std::vector<std::int64_t>;
using Split = std::vector<int>;

TEST(ShareLanes, RoundsByLargestRemainder) {
  EXPECT_EQ(share_lanes(Work{300, 100}, 8), (Split{6, 2}));
  EXPECT_EQ(share_lanes(Work{200, 100}, 8), (Split{5, 3}));    // 5.33, 2.67
  EXPECT_EQ(share_lanes(Work{243, 100}, 16), (Split{11, 5}));  // 11.34, 4.66
  EXPECT_EQ(share_lanes(Work{10, 20, 70}, 10), (Split{1, 2, 7}));
  EXPECT_EQ(share_lanes(Work{4, 4, 4}, 8), (Split{3, 3, 2}));  // 2.67 each: the earlier ones
}

TEST(ShareLanes, GivesTiesToTheEarlierModule) {
  EXPECT_EQ(share_lanes(Work{105, 55}, 16), (Split{11, 5}));  // 10.5, 5.5
  EXPECT_EQ(share_lanes(Work{55, 105}, 16), (Split{6, 10}));
  EXPECT_EQ(share_lanes(Work{105'000'000'000'001, 55'000'000'000'002}, 16), (Split{10, 6}))
      << "a difference beyond the digits of a double";
}

TEST(ShareLanes, KeepsItsLimits) {
  EXPECT_EQ(share_lanes(Work{0, 5}, 4), (Split{1, 3}));
  EXPECT_EQ(share_lanes(Work{1'000, 1}, 14, Split{10, 10}), (Split{10, 4}));
  EXPECT_EQ(share_lanes(Work{0, 0}, 5), (Split{3, 2}));
  const std::int64_t most = std::int64_t{1} << 61;
  EXPECT_EQ(share_lanes(Work{most, most}, 4096), (Split{2048, 2048}));
}

// Largest remainder by its book: whole parts, then the largest fractions.
TEST(ShareLanes, AgreesWithTheBookWhereNoLimitBinds) {
  Rng rng(11);
  int compared = 0;
  for (int i = 0; i < 5'000; ++i) {
    const int modules = 2 + static_cast<int>(rng.below(3));
    const int lanes = modules + static_cast<int>(rng.below(20));
    Work work;
    for (int m = 0; m < modules; ++m) {
      work.push_back(static_cast<std::int64_t>(rng.below(60)));
    }
    const std::int64_t total = std::accumulate(work.begin(), work.end(), std::int64_t{0});
    if (total == 0 ||
        std::any_of(work.begin(), work.end(), [&](auto w) { return w * lanes < total; })) {
      continue;
    }
    Split expected;
    std::vector<std::size_t> order;
    for (std::size_t m = 0; m < work.size(); ++m) {
      expected.push_back(static_cast<int>(work[m] * lanes / total));
      order.push_back(m);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return work[a] * lanes % total > work[b] * lanes % total;
    });
    const int left = lanes - std::accumulate(expected.begin(), expected.end(), 0);
    for (int j = 0; j < left; ++j) {
      ++expected[order[static_cast<std::size_t>(j)]];
    }
    EXPECT_EQ(share_lanes(work, lanes), expected) << testing::PrintToString(work) << lanes;
    ++compared;
  }
  EXPECT_GT(compared, 1'000);
}

}  // namespace
}  // namespace entrain
