#include "entrain/engine/profiler/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "entrain/core/base/errors.h"

namespace entrain::engine {

double quantile(std::vector<double> values, double share) {
  ENTRAIN_INVARIANT(!values.empty(), "a quantile of nothing");
  std::sort(values.begin(), values.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double part = position - std::floor(position);
  return values[below] + part * (values[above] - values[below]);
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

double capped_mean(const std::vector<double>& values) {
  constexpr double kMostMedians = 3;
  const double most = kMostMedians * median(values);
  double sum = 0;
  for (const double value : values) {
    sum += std::min(value, most);
  }
  return sum / static_cast<double>(values.size());
}

double relative_spread(const std::vector<double>& values) {
  const double middle = median(values);
  return middle > 0 ? (quantile(values, 0.75) - quantile(values, 0.25)) / middle : 0.0;
}

std::vector<char> outliers(const std::vector<double>& values) {
  std::vector<char> result(values.size(), 0);
  if (values.empty()) {
    return result;
  }
  const double upper = quantile(values, 0.75);
  const double distance = std::max(upper - quantile(values, 0.25), 0.01 * median(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i] = values[i] > upper + 1.5 * distance ? 1 : 0;
  }
  return result;
}

}  // namespace entrain::engine
