#include "entrain/engine/profiler/statistics.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(Median, IsTheMiddleWhateverTheOrder) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  EXPECT_EQ(quantile({1, 2, 3, 4, 5}, 0.25), 2);
  EXPECT_EQ(quantile({10, 20}, 0.75), 17.5);
  EXPECT_EQ(quantile({10, 20}, 1), 20);
}

TEST(CappedMean, CountsSlowMomentsAndNoSingleMishap) {
  EXPECT_DOUBLE_EQ(capped_mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(capped_mean({10, 10, 20, 20}), 15);
  EXPECT_DOUBLE_EQ(capped_mean({10, 10, 1e12}), (10 + 10 + 30) / 3.0);
  EXPECT_EQ(capped_mean({0, 0, 7}), 0);
  EXPECT_EQ(capped_mean({4}), 4);
}

TEST(RelativeSpread, IsTheQuartilesDistance) {
  EXPECT_DOUBLE_EQ(relative_spread({8, 9, 10, 11, 12}), 0.2);
  EXPECT_EQ(relative_spread({0, 0, 0}), 0);
}

TEST(Outliers, AreSlowMomentsOnly) {
  EXPECT_EQ(outliers({10, 10.1, 9.9, 10, 30}), (std::vector<char>{0, 0, 0, 0, 1}));
  EXPECT_EQ(outliers({10, 10.1, 9.9, 10, 1}), (std::vector<char>{0, 0, 0, 0, 0}));
  EXPECT_EQ(outliers({10, 10, 10, 10.01}), (std::vector<char>{0, 0, 0, 0})) << "a thousandth";
}

}  // namespace
}  // namespace entrain::engine
