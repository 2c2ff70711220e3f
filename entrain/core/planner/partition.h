// A module's layers cut into stages.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/spec/plan.h"

namespace entrain {

// The contiguous cut into `stages` parts whose largest sum is least; of several such cuts the one
// whose earlier parts end first. Every part has at least one layer.
//
// Requires  every cost >= 0; their sum fits 64 bits.
// Returns   no ranges when stages < 1 or there are fewer layers than stages.
// Cost      O(layers² × stages).
// Source    the paper's algorithm 2: F(l, p) = min over l' of max(F(l', p - 1), T(l', l)).
std::vector<LayerRange> min_max_partition(const std::vector<std::int64_t>& layer_ns, int stages);

}  // namespace entrain
