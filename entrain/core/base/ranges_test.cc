#include "entrain/core/base/ranges.h"

#include <limits>

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(Ranges, HoldTheirEnds) {
  const WholeRange whole{-1, 1'000'000};
  EXPECT_EQ(range_error(std::int64_t{-1}, whole), "");
  EXPECT_EQ(range_error(std::int64_t{1'000'000}, whole), "");
  EXPECT_EQ(range_error(std::int64_t{-2}, whole), "-2 is out of range; allowed: -1 to 1,000,000");
  EXPECT_EQ(range_error(std::numeric_limits<std::int64_t>::max(), whole),
            "9,223,372,036,854,775,807 is out of range; allowed: -1 to 1,000,000");
  EXPECT_EQ(range_error(0.0, NumberRange{0, 1}), "");
  EXPECT_EQ(range_error(1.0, NumberRange{0, 1}), "");
}

TEST(Ranges, LeaveOutOpenEnds) {
  const NumberRange up_to_a_day{0, 86'400, true};
  EXPECT_EQ(range_error(86'400.0, up_to_a_day), "");
  EXPECT_EQ(range_error(1e-9, up_to_a_day), "");
  EXPECT_EQ(range_error(0.0, up_to_a_day), "0 is out of range; allowed: above 0, up to 86,400");
  EXPECT_EQ(range_error(1.0, NumberRange{0, 1, false, true}),
            "1 is out of range; allowed: 0 to below 1");
}

TEST(Ranges, HoldNoNumberWithoutEnd) {
  const NumberRange any{-1e300, 1e300};
  EXPECT_EQ(range_error(std::numeric_limits<double>::quiet_NaN(), any),
            "nan is out of range; allowed: -1e+300 to 1e+300");
  EXPECT_NE(range_error(std::numeric_limits<double>::infinity(), any), "");
  EXPECT_NE(range_error(-std::numeric_limits<double>::infinity(), any), "");
}

}  // namespace
}  // namespace entrain
