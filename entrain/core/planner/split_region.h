// The work mixes for which rounding gives one split of devices: a cone bounded by linear forms.
//
// Read first: split_region(). The forms concentrate in large batches
// (docs/static-plan.md) and are the basis of a run's drift test (drift.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace entrain {

// The boundary where one device moves from one module to another: outside if Σ coefficient[m] ·
// work[m] > 0.
struct SplitBoundary {
  int gains = 0;                           // module that gets a device beyond the boundary
  int loses = 0;                           // module that loses it
  std::vector<std::int64_t> coefficients;  // [module]

  // Σ coefficient · work.
  [[nodiscard]] double value(std::span<const std::int64_t> work_ns) const;
  // Work, in devices, by which a mix is outside (negative: inside): this amount would have to
  // move between the two modules to reach the boundary. 0 without work.
  [[nodiscard]] double excess(std::span<const std::int64_t> work_ns) const;
};

struct SplitRegion {
  std::vector<int> devices_of;            // [module]
  std::vector<SplitBoundary> boundaries;  // none: no mix gives another split

  // The least distance to a boundary, in devices of work; negative outside, infinite without
  // boundaries.
  [[nodiscard]] double margin(std::span<const std::int64_t> work_ns) const;
};

// The mixes that share_lanes() without upper limits rounds to this split. On a boundary itself
// either of two splits may result, so a mix of margin 0 certainly belongs to no region.
//
// With exact shares e and a split g, no device moves from j to i while (e_i - g_i) - (e_j - g_j) <=
// 1; a module with one device cannot lose any.
//
// Requires  every count >= 1.
// Ensures   margin(work) > 0 implies that share_lanes(work) is the split, margin(work) < 0 that it
//           is another.
SplitRegion split_region(std::span<const int> devices_of);

// Factors of one module's work.
struct FactorRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
};

// The factors by which one module's work may change, all others fixed, while the mix stays inside.
//
// Requires  the mix is inside: margin(work_ns) >= 0.
// Ensures   low <= 1 <= high.
FactorRange factor_range(const SplitRegion& region,
                         std::span<const std::int64_t> work_ns,
                         int module);

}  // namespace entrain
