// What of the costs of whole samples is attention's, estimated from how they grow with length.
#pragma once

#include <cstdint>
#include <span>

#include "entrain/core/cost/step_costs.h"

namespace entrain {

// A whole sample in a causal module.
struct LengthCost {
  std::int64_t tokens = 0;
  std::int64_t nanoseconds = 0;
};

// Least squares of nanoseconds = per_pair · tokens² / 2 + per_token · tokens, neither below 0. Long
// samples weigh most: they are the ones that are cut.
//
// Returns  weights of 0, which distribute a cost evenly over the tokens, where costs do not grow
//          faster than lengths, and where lengths do not show it: the longest sample is not twice
//          as long as the shortest one with tokens, or has more than 2^30.
CostWeights fit_length_costs(std::span<const LengthCost> samples);

}  // namespace entrain
