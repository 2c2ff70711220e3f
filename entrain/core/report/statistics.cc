#include "entrain/core/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "entrain/core/base/errors.h"

namespace entrain {

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double percentile(std::vector<double> values, double share) {
  ENTRAIN_INVARIANT(share > 0 && share <= 1, "a percentile's share lies in (0, 1]");
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  // Rounded down by a hair, so that 0.95 of 20 values is the 19th.
  const double rank = std::ceil(share * static_cast<double>(values.size()) - 1e-9);
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

Spread spread_of(std::span<const double> values) {
  Spread spread;
  if (values.empty()) {
    return spread;
  }
  const auto count = static_cast<double>(values.size());
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.std = std::sqrt(squares / count);
  if (spread.mean > 0) {
    spread.cv = spread.std / spread.mean;
    spread.max_over_mean = *std::max_element(values.begin(), values.end()) / spread.mean;
  }
  return spread;
}

}  // namespace entrain
