#include "entrain/core/report/statistics.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(Median, IsTheMiddleValue) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({9, 1, 5, 4}), 4.5);
}

TEST(Percentile, TakesTheNearestRank) {
  std::vector<double> values;
  for (int i = 20; i >= 1; --i) {
    values.push_back(i);
  }
  EXPECT_EQ(percentile(values, 0.95), 19);
  EXPECT_EQ(percentile(values, 0.96), 20);
  EXPECT_EQ(percentile(values, 0.5), 10);
  EXPECT_EQ(percentile(values, 0.01), 1);
  EXPECT_EQ(percentile({3, 1}, 0.95), 3);
  EXPECT_EQ(percentile({}, 0.95), 0);
}

TEST(SpreadOf, IsThatOfThePopulation) {
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  const Spread spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.mean, 5);
  EXPECT_DOUBLE_EQ(spread.std, 2);
  EXPECT_DOUBLE_EQ(spread.cv, 0.4);
  EXPECT_DOUBLE_EQ(spread.max_over_mean, 1.8);
}

TEST(SpreadOf, IsZeroWithoutWork) {
  EXPECT_EQ(spread_of({}).cv, 0);
  const std::vector<double> zeros = {0, 0};
  EXPECT_EQ(spread_of(zeros).cv, 0);
  EXPECT_EQ(spread_of(zeros).max_over_mean, 0);
}

}  // namespace
}  // namespace entrain
