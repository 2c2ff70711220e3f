#include "entrain/core/base/random.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Values of an independent implementation of the published algorithms. The first row is also the
// published first output of xoshiro256** seeded by splitmix64 from 0.
TEST(Rng, GivesGoldenSequence) {
  struct Case {
    std::uint64_t seed;
    std::uint64_t stream;
    std::array<std::uint64_t, 4> values;
  };
  const std::vector<Case> cases = {
      {0, 0, {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0, 0x6aa594f1262d2d2c}},
      {1, 0, {0xb3f2af6d0fc710c5, 0x853b559647364cea, 0x92f89756082a4514, 0x642e1c7bc266a3a7}},
      {20260101,
       0,
       {0x57e28e0407eb6ade, 0xae12aadc7d2056a3, 0x007b518906d1df4f, 0x98342917c27b3aeb}},
      {7, 3, {0x7957c3b74b90459e, 0x32f5b5fef980b055, 0xf54ad23e63375dfe, 0x177a7d2c63888ecd}},
  };
  for (const Case& expected : cases) {
    Rng rng(expected.seed, expected.stream);
    for (const std::uint64_t value : expected.values) {
      EXPECT_EQ(rng.next(), value) << "seed " << expected.seed << " stream " << expected.stream;
    }
  }
}

TEST(Rng, DrawsGoldenBoundedValues) {
  Rng rng(5);
  for (const std::uint64_t value : {5, 0, 0, 3, 1, 1, 5, 4, 1, 4, 1, 5}) {
    EXPECT_EQ(rng.below(6), value);
  }
  // Almost half of all draws are rejected for this bound.
  const std::uint64_t bound = (std::uint64_t{1} << 63U) + 1;
  for (const std::uint64_t value :
       {4432821188245142527ULL, 1177656309671994270ULL, 6859475547808680879ULL}) {
    EXPECT_EQ(rng.below(bound), value);
  }
}

TEST(Rng, DrawsGoldenUniformValues) {
  Rng rng(5);
  EXPECT_EQ(rng.uniform(), 0.2884112281702357);
  EXPECT_EQ(rng.uniform(), 0.6020823331320106);
  EXPECT_EQ(rng.uniform(), 0.6495467305510222);
}

TEST(Rng, ShufflesInGoldenOrder) {
  std::vector<int> values(10);
  std::iota(values.begin(), values.end(), 0);
  Rng rng(42);
  rng.shuffle(std::span<int>(values));
  EXPECT_EQ(values, (std::vector<int>{7, 3, 8, 9, 5, 6, 4, 1, 0, 2}));
}

TEST(Rng, ShufflesNothingForEmptyAndSingleLists) {
  Rng rng(1);
  std::vector<int> values;
  rng.shuffle(std::span<int>(values));
  values = {3};
  rng.shuffle(std::span<int>(values));
  EXPECT_EQ(values, std::vector<int>{3});
  EXPECT_EQ(rng.next(), Rng(1).next()) << "no draw is spent";
}

TEST(Rng, StaysBelowEveryBound) {
  Rng rng(11);
  for (std::uint64_t bound = 1; bound <= 1000; ++bound) {
    for (int draw = 0; draw < 20; ++draw) {
      EXPECT_LT(rng.below(bound), bound);
    }
  }
  EXPECT_EQ(rng.below(1), 0U);
}

TEST(Rng, RefusesAnEmptyRange) {
  Rng rng(1);
  EXPECT_THROW(rng.below(0), InternalError);
}

// Chi-square over the residues; with 6 degrees of freedom it exceeds 22.5 once in a thousand seeds.
TEST(Rng, DrawsEveryResidueEquallyOften) {
  constexpr int kDraws = 70'000;
  constexpr int kBound = 7;
  Rng rng(3);
  std::array<double, kBound> counts{};
  for (int draw = 0; draw < kDraws; ++draw) {
    counts[rng.below(kBound)] += 1;
  }
  const double expected = static_cast<double>(kDraws) / kBound;
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 22.5);
}

// Without rejection the lower half of this range would come up twice as often as the upper half.
TEST(Rng, IsUnbiasedForBoundsThatDoNotDivideTheRange) {
  constexpr int kDraws = 30'000;
  const std::uint64_t bound = (std::uint64_t{3} << 62U);
  Rng rng(9);
  int lowest_third = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    lowest_third += rng.below(bound) < (std::uint64_t{1} << 62U) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(lowest_third) / kDraws, 1.0 / 3.0, 0.01);
}

TEST(Rng, DrawsUniformAndNormalOfRightMoments) {
  constexpr int kDraws = 50'000;
  Rng rng(17);
  double uniform_sum = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double value = rng.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    uniform_sum += value;
    const double normal = rng.normal();
    ASSERT_TRUE(std::isfinite(normal));
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 0.02);
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 0.03);
}

TEST(Rng, SeparatesStreamsAndSeeds) {
  Rng zero(7, 0);
  Rng one(7, 1);
  Rng two(7, 2);
  Rng other_seed(8, 1);
  const std::uint64_t first = one.next();
  EXPECT_NE(first, zero.next());
  EXPECT_NE(first, two.next());
  EXPECT_NE(first, other_seed.next());
  EXPECT_EQ(first, Rng(7, 1).next());
}

}  // namespace
}  // namespace entrain
