#include "entrain/core/assigner/balance_split.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

double squares_of(const std::vector<SplitItem>& items,
                  std::vector<double> difference,
                  const std::vector<int>& options) {
  double sum = 0;
  for (std::size_t d = 0; d < difference.size(); ++d) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      difference[d] +=
          items[i].change[static_cast<std::size_t>(options[i]) * difference.size() + d];
    }
    sum += difference[d] * difference[d];
  }
  return sum;
}

TEST(BestSplit, EvensOutTheDifference) {
  // Slot loads 7 + 5 + 2 and 4: the 5 has to change sides.
  const std::vector<SplitItem> items = {{2, {0, -14}}, {2, {0, -10}}, {2, {0, -4}}, {2, {0, 8}}};
  EXPECT_EQ(best_split(items, {10}, 0.1), (std::vector<int>{0, 1, 0, 0}));
}

TEST(BestSplit, LeavesThingsWhereNothingImproves) {
  const std::vector<SplitItem> items = {{2, {0, -6}}, {2, {0, 6}}};
  EXPECT_EQ(best_split(items, {0}, 0.1), (std::vector<int>{0, 0}));
  EXPECT_TRUE(best_split({}, {3, 4}, 0.1).empty());
}

TEST(BestSplit, AgreesWithAllCombinations) {
  Rng rng(41, 1);
  for (int i = 0; i < 500; ++i) {
    const std::size_t dimensions = 1 + rng.below(3);
    std::vector<SplitItem> items(1 + rng.below(5));
    for (SplitItem& item : items) {
      item.num_options = 2 + static_cast<int>(rng.below(2));
      item.change.assign(static_cast<std::size_t>(item.num_options) * dimensions, 0.0);
      for (std::size_t c = dimensions; c < item.change.size(); ++c) {
        item.change[c] = static_cast<double>(rng.below(40)) - 20;
      }
    }
    std::vector<double> difference(dimensions);
    for (double& value : difference) {
      value = static_cast<double>(rng.below(60)) - 30;
    }
    double least = std::numeric_limits<double>::infinity();
    std::vector<int> options(items.size(), 0);
    for (std::size_t next = 0; next < items.size();) {
      least = std::min(least, squares_of(items, difference, options));
      for (next = 0; next < items.size() && ++options[next] == items[next].num_options; ++next) {
        options[next] = 0;
      }
    }
    const std::vector<int> best = best_split(items, difference, 0);
    ASSERT_EQ(squares_of(items, difference, best), least) << "case " << i;
  }
}

TEST(BestSplit, DoesNotMoveForLessThanTheLeastGain) {
  const std::vector<SplitItem> items = {{2, {0, -2}}};
  EXPECT_EQ(best_split(items, {2}, 3.9), std::vector<int>{1});
  EXPECT_EQ(best_split(items, {2}, 4.1), std::vector<int>{0});
}

TEST(KeepAffordable, StopsBeforeTheProductIsTooLarge) {
  for (const auto& [combinations, product, count] :
       {std::tuple{27, 27, 3U}, {26, 9, 2U}, {2, 1, 0U}, {1000, 81, 4U}}) {
    std::vector<SplitItem> items(4, {3, {0, 1, 2}});
    EXPECT_EQ(keep_affordable(items, combinations), product);
    EXPECT_EQ(items.size(), count);
  }
}

}  // namespace
}  // namespace entrain
