#include "entrain/core/planner/split_region.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
double SplitBoundary::value(std::span<const std::int64_t> work_ns) const {
  ENTRAIN_INVARIANT(work_ns.size() == coefficients.size(), "a mix has one work per module");
  double sum = 0;
  for (std::size_t m = 0; m < work_ns.size(); ++m) {
    sum += static_cast<double>(coefficients[m]) * static_cast<double>(work_ns[m]);
  }
  return sum;
}

double SplitBoundary::excess(std::span<const std::int64_t> work_ns) const {
  const double total = std::accumulate(work_ns.begin(), work_ns.end(), 0.0);
  return total > 0 ? value(work_ns) / total / 2 : 0;
}

double SplitRegion::margin(std::span<const std::int64_t> work_ns) const {
  double least = std::numeric_limits<double>::infinity();
  for (const SplitBoundary& boundary : boundaries) {
    least = std::min(least, -boundary.excess(work_ns));
  }
  return least;
}

SplitRegion split_region(std::span<const int> devices_of) {
  SplitRegion region;
  region.devices_of.assign(devices_of.begin(), devices_of.end());
  const std::int64_t devices =
      std::accumulate(devices_of.begin(), devices_of.end(), std::int64_t{0});
  const auto modules = static_cast<int>(devices_of.size());
  for (int gains = 0; gains < modules; ++gains) {
    for (int loses = 0; loses < modules; ++loses) {
      if (gains == loses || devices_of[at(loses)] < 2) {
        continue;
      }
      SplitBoundary& boundary = region.boundaries.emplace_back();
      boundary.gains = gains;
      boundary.loses = loses;
      // Times the total work: devices · (w_i - w_j) - (1 + g_i - g_j) · Σ w.
      const std::int64_t shift = 1 + devices_of[at(gains)] - devices_of[at(loses)];
      boundary.coefficients.assign(devices_of.size(), -shift);
      boundary.coefficients[at(gains)] += devices;
      boundary.coefficients[at(loses)] -= devices;
    }
  }
  return region;
}

FactorRange factor_range(const SplitRegion& region,
                         std::span<const std::int64_t> work_ns,
                         int module) {
  FactorRange range;
  for (const SplitBoundary& boundary : region.boundaries) {
    const double own = static_cast<double>(boundary.coefficients[at(module)]) *
                       static_cast<double>(work_ns[at(module)]);
    const double others = boundary.value(work_ns) - own;
    // own · f + others <= 0
    if (own > 0) {
      range.high = std::min(range.high, -others / own);
    } else if (own < 0) {
      range.low = std::max(range.low, -others / own);
    }
  }
  return range;
}

}  // namespace entrain
