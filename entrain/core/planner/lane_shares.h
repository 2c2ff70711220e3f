// Whole lanes by work shares: the only rounding from work shares to a discrete split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace entrain {

// Module m's exact share is work_ns[m] / total · lanes. Every module gets one lane, then each
// further lane goes to the module furthest below its exact share, ties to the earlier one:
// whole numbers by largest remainder, with at least one lane each and at most `most`. Without any
// work all modules are equally far below.
//
// Shapes    work_ns: [module]; most: [module], or empty for no upper limit; result: [module].
// Requires  every work >= 0, their sum <= 2^62; lanes >= number of modules; most[m] >= 1, their sum
//           >= lanes.
// Ensures   the result sums to `lanes`; exact integer arithmetic.
// Cost      O(lanes × modules).
std::vector<int> share_lanes(std::span<const std::int64_t> work_ns,
                             int lanes,
                             std::span<const int> most = {});

}  // namespace entrain
