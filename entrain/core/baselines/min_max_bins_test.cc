#include "entrain/core/baselines/min_max_bins.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

double largest_load(const std::vector<Load>& items, const std::vector<int>& bin_of, int num_bins) {
  std::vector<Load> loads(static_cast<std::size_t>(num_bins));
  double largest = 0;
  for (std::size_t item = 0; item < items.size(); ++item) {
    Load& load = loads[static_cast<std::size_t>(bin_of[item])];
    for (std::size_t d = 0; d < load.size(); ++d) {
      load[d] += items[item][d];
      largest = std::max(largest, load[d]);
    }
  }
  return largest;
}

bool all_used(const std::vector<int>& bin_of, int num_bins) {
  for (int bin = 0; bin < num_bins; ++bin) {
    if (std::find(bin_of.begin(), bin_of.end(), bin) == bin_of.end()) {
      return false;
    }
  }
  return true;
}

// Every placement with an item in every bin.
double exhaustive_min_max(const std::vector<Load>& items, int num_bins) {
  std::vector<int> bin_of(items.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    if (all_used(bin_of, num_bins)) {
      best = std::min(best, largest_load(items, bin_of, num_bins));
    }
    std::size_t i = 0;
    while (i < bin_of.size() && ++bin_of[i] == num_bins) {
      bin_of[i++] = 0;
    }
    if (i == bin_of.size()) {
      return best;
    }
  }
}

std::vector<Load> random_items(Rng& rng, std::size_t count, bool heavy_tail) {
  std::vector<Load> items(count);
  for (Load& item : items) {
    for (std::size_t d = 0; d < 2; ++d) {
      item[d] = static_cast<double>(rng.below(40));
      if (heavy_tail && rng.below(8) == 0) {
        item[d] *= 20;
      }
    }
  }
  return items;
}

TEST(MinMaxBins, FindsTheOptimumOfTinyInstances) {
  Rng rng(17, 1);
  for (int i = 0; i < 1000; ++i) {
    const auto num_bins = static_cast<int>(1 + rng.below(4));
    const auto count = static_cast<std::size_t>(num_bins) + static_cast<std::size_t>(rng.below(4));
    const std::vector<Load> items = random_items(rng, count, i % 2 == 0);
    const MinMaxBins result = min_max_bins(items, num_bins, 100'000);
    const double least = exhaustive_min_max(items, num_bins);
    ASSERT_EQ(result.largest, least) << "case " << i;
    ASSERT_TRUE(result.optimal) << "case " << i;
    ASSERT_LE(result.bound, least) << "case " << i;
    ASSERT_EQ(largest_load(items, result.bin_of, num_bins), result.largest) << "case " << i;
    ASSERT_TRUE(all_used(result.bin_of, num_bins)) << "case " << i;
  }
}

TEST(MinMaxBins, MeetsTheBoundOfPairs) {
  // Five items of 10 in four bins: two share one.
  const std::vector<Load> items(5, Load{10, 1});
  const MinMaxBins result = min_max_bins(items, 4, 1000);
  EXPECT_EQ(result.bound, 20);
  EXPECT_EQ(result.largest, 20);
  EXPECT_TRUE(result.optimal);
}

TEST(MinMaxBins, ComesNearTheBoundOfLargeInstances) {
  Rng rng(17, 2);
  std::vector<Load> items(512);
  for (Load& item : items) {
    item = {static_cast<double>(1000 + rng.below(1000)), static_cast<double>(rng.below(3000))};
  }
  const MinMaxBins result = min_max_bins(items, 128, 1'000'000);
  EXPECT_GE(result.largest, result.bound);
  EXPECT_LE(result.largest, 1.05 * result.bound);
  EXPECT_EQ(largest_load(items, result.bin_of, 128), result.largest);
  EXPECT_TRUE(all_used(result.bin_of, 128));
}

TEST(MinMaxBins, GivesEveryBinAnItemWithoutWork) {
  EXPECT_TRUE(all_used(min_max_bins(std::vector<Load>(6), 6, 1000).bin_of, 6));
}

}  // namespace
}  // namespace entrain
