// Samples to replicas whose loads are equal in several dimensions.
#pragma once

#include <vector>

namespace entrain {

// Samples by falling sum over dimensions, each to the replica where Σ load² grows least; then moves
// of one sample and swaps of two between replicas while Σ load² falls, up to a fixed number of
// evaluated swaps. Dimensions with loads of equal size have equal weight.
//
// Shapes    shares: [sample][dimension], >= 0; result: [replica] samples in rising order.
// Requires  at least one sample per replica.
// Ensures   every replica has a sample; equal arguments give equal results on every machine.
// Cost      O(samples × replicas + swaps), dimensions each; at most 20 million swaps.
std::vector<std::vector<int>> balance_replicas(const std::vector<std::vector<double>>& shares,
                                               int replicas);

}  // namespace entrain
