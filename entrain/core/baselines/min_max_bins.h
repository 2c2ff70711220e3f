// Bins with the smallest largest load in any of several dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/baselines/loads.h"

namespace entrain {

struct MinMaxBins {
  std::vector<int> bin_of;  // [item]
  double largest = 0;       // load of any bin in any dimension
  double bound = 0;         // no placement has a smaller one
  bool optimal = false;     // proven: the bound is met, or all placements were searched
};

// Loads are whole numbers below 2^53, so that sums in doubles are exact.
//
// Bound    in each dimension the maximum of the mean load, rounded up, and, for k = 0, 1, 2, …, the
//          sum of the k + 1 smallest among the k·m + 1 largest items, of which some bin of m holds
//          k + 1.
// Search   a greedy start (items by falling largest dimension, each to the bin whose maximum stays
//          smallest); then the fullest bin gives an item away or swaps one, by the exchange that
//          leaves the larger of both bins smallest; if none helps, random exchanges between two
//          other bins, which stay below the maximum, perturb the rest. Stops at the bound, or after
//          `budget` evaluated exchanges. Up to 16 items: a short search of that kind, then branch
//          and bound over all placements, given up after 200,000 nodes.
//
// Shapes    result.bin_of: [items], values in [0, num_bins).
// Requires  1 <= num_bins <= items.
// Ensures   every bin holds an item; equal arguments give equal results.
// Cost      O(items × bins + budget).
MinMaxBins min_max_bins(const std::vector<Load>& items, int num_bins, std::int64_t budget);

}  // namespace entrain
