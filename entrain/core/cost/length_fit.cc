#include "entrain/core/cost/length_fit.h"

#include <algorithm>
#include <limits>

namespace entrain {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 30;  // whose square a chunk's cost can hold

}  // namespace

CostWeights fit_length_costs(std::span<const LengthCost> samples) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t longest = 0;
  for (const LengthCost& sample : samples) {
    shortest = sample.tokens > 0 ? std::min(shortest, sample.tokens) : shortest;
    longest = std::max(longest, sample.tokens);
  }
  if (longest > kLongest || longest / 2 < shortest) {
    return {};
  }
  const auto scale = static_cast<double>(longest);
  double squares = 0;  // sums of powers of x = tokens / longest, and of their products with y
  double cubes = 0;
  double fourths = 0;
  double square_costs = 0;
  double linear_costs = 0;
  for (const LengthCost& sample : samples) {
    const double x = static_cast<double>(sample.tokens) / scale;
    const auto y = static_cast<double>(sample.nanoseconds);
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    square_costs += x * x * y;
    linear_costs += x * y;
  }
  const double quadratic = square_costs * squares - linear_costs * cubes;  // both over one divisor
  const double linear = linear_costs * fourths - square_costs * cubes;
  if (quadratic <= 0) {
    return {};
  }
  return {.per_pair = 2 * quadratic / scale / scale, .per_token = std::max(0.0, linear) / scale};
}

}  // namespace entrain
