#include "entrain/core/planner/split_region.h"

#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/lane_shares.h"

namespace entrain {
namespace {

using Work = std::vector<std::int64_t>;

Work random_work(Rng& rng, std::size_t modules) {
  Work work;
  for (std::size_t m = 0; m < modules; ++m) {
    work.push_back(static_cast<std::int64_t>(rng.below(1'000)));
  }
  return work;
}

TEST(SplitRegion, HasHalfADeviceToEachSideOfAnExactShare) {
  const SplitRegion region = split_region(std::vector<int>{10, 6});
  EXPECT_NEAR(region.margin(Work{100, 60}), 0.5, 1e-12);
  EXPECT_NEAR(region.margin(Work{1025, 575}), 0.25, 1e-12);  // 10.25 : 5.75
  EXPECT_NEAR(region.margin(Work{105, 55}), 0, 1e-12);
  EXPECT_NEAR(region.margin(Work{110, 50}), -0.5, 1e-12);
}

TEST(SplitRegion, KnowsWhoGainsBeyondABoundary) {
  const SplitRegion region = split_region(std::vector<int>{10, 6});
  ASSERT_EQ(region.boundaries.size(), 2U);
  for (const SplitBoundary& boundary : region.boundaries) {
    const bool vision = boundary.gains == 0;
    EXPECT_EQ(boundary.loses, vision ? 1 : 0);
    EXPECT_EQ(boundary.excess(Work{120, 40}) > 0, vision);
    EXPECT_EQ(boundary.excess(Work{80, 80}) > 0, !vision);
  }
}

TEST(SplitRegion, TakesNoDeviceFromAModuleWithOne) {
  const SplitRegion region = split_region(std::vector<int>{1, 7});
  ASSERT_EQ(region.boundaries.size(), 1U);
  EXPECT_EQ(region.boundaries[0].gains, 0);
  EXPECT_GT(region.margin(Work{0, 100}), 0);
  EXPECT_TRUE(std::isinf(split_region(std::vector<int>{1, 1}).margin(Work{9, 1})));
}

// A mix lies in the region of the split it is rounded to, and outside that of every other.
TEST(SplitRegion, AgreesWithTheRounding) {
  Rng rng(5);
  for (int i = 0; i < 5'000; ++i) {
    const std::size_t modules = 2 + rng.below(2);
    const int devices = static_cast<int>(modules + rng.below(12));
    const Work work = random_work(rng, modules);
    const std::vector<int> split = share_lanes(work, devices);
    EXPECT_GE(split_region(split).margin(work), -1e-9) << testing::PrintToString(work);
    const std::vector<int> other = share_lanes(random_work(rng, modules), devices);
    if (other != split) {
      EXPECT_LE(split_region(other).margin(work), 1e-9) << testing::PrintToString(work);
    }
  }
}

TEST(FactorRange, EndsWhereTheSplitChanges) {
  Rng rng(6);
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t modules = 2 + rng.below(2);
    const int devices = static_cast<int>(modules + rng.below(12));
    Work work = random_work(rng, modules);
    for (std::int64_t& of : work) {
      of = (of + 1) * 1'000'000'000;
    }
    const std::vector<int> split = share_lanes(work, devices);
    const int module = static_cast<int>(rng.below(modules));
    const FactorRange range = factor_range(split_region(split), work, module);
    ASSERT_LE(range.low, 1 + 1e-9);
    ASSERT_GE(range.high, 1 - 1e-9);
    const auto split_at = [&](double factor) {
      Work scaled = work;
      auto& own = scaled[static_cast<std::size_t>(module)];
      own = static_cast<std::int64_t>(static_cast<double>(own) * factor);
      return share_lanes(scaled, devices);
    };
    const double inner = 1e-6;
    EXPECT_EQ(split_at(range.low + (1 - range.low) * inner), split);
    if (range.low > 0) {
      EXPECT_NE(split_at(range.low * (1 - inner)), split);
    }
    if (std::isfinite(range.high)) {
      EXPECT_EQ(split_at(range.high - (range.high - 1) * inner), split);
      EXPECT_NE(split_at(range.high * (1 + inner)), split);
    } else {
      EXPECT_EQ(split_at(1e3), split);
    }
  }
}

}  // namespace
}  // namespace entrain
