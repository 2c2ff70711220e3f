#include "entrain/core/cost/length_fit.h"

#include <vector>

#include <gtest/gtest.h>

namespace entrain {
namespace {

// Samples of 100, 200, … tokens, at this cost a pair and token.
std::vector<LengthCost> samples_of(double per_pair, double per_token) {
  std::vector<LengthCost> samples;
  for (std::int64_t tokens = 100; tokens <= 4000; tokens += 100) {
    const auto n = static_cast<double>(tokens);
    samples.push_back(
        {tokens, static_cast<std::int64_t>(per_pair * n * n / 2 + per_token * n + 0.5)});
  }
  return samples;
}

double ratio(const CostWeights& weights) {
  return weights.per_pair / weights.per_token;
}

TEST(FitLengthCosts, FindsTheShareOfAttention) {
  EXPECT_NEAR(ratio(fit_length_costs(samples_of(2, 1000))), 2e-3, 1e-8);
  EXPECT_NEAR(ratio(fit_length_costs(samples_of(50, 100))), 0.5, 1e-5);
  EXPECT_NEAR(fit_length_costs(samples_of(3, 0)).per_token, 0, 1e-6) << "nothing but attention";
}

TEST(FitLengthCosts, IsNotMisledByTheConstantOfShortSamples) {
  std::vector<LengthCost> samples = samples_of(2, 1000);
  for (LengthCost& sample : samples) {
    sample.nanoseconds += 50'000;  // as much as 50 tokens
  }
  EXPECT_NEAR(ratio(fit_length_costs(samples)), 2e-3, 2e-4);
}

TEST(FitLengthCosts, IsEvenWhereCostsDoNotShowAttention) {
  const auto expect_even = [](const std::vector<LengthCost>& samples) {
    const CostWeights weights = fit_length_costs(samples);
    EXPECT_EQ(weights.per_pair, 0);
    EXPECT_EQ(weights.per_token, 0);
  };
  expect_even({});
  expect_even({{0, 0}, {0, 10}});
  expect_even({{1000, 5000}, {1999, 20'000}});
  expect_even({{100, 5000}, {1000, 20'000}});  // cheaper a token
  expect_even({{100, 1}, {std::int64_t{1} << 31, std::int64_t{1} << 60}});
}

}  // namespace
}  // namespace entrain
