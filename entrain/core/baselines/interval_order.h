// DistTrain's order of the microbatches of one replica.
#pragma once

#include <cstdint>
#include <vector>

namespace entrain {

// A pipeline as one chain of stages, and the times of every microbatch there, in nanoseconds.
struct ChainTimes {
  std::vector<std::vector<std::int64_t>> forward;   // [stage][microbatch]
  std::vector<std::vector<std::int64_t>> backward;  // [stage][microbatch]
};

// Microbatches in the order in which they should run under strict 1F1B on P stages.
//
// Size means forward time on the first stage. The smallest comes first, so that the pipeline fills
// soon; the P - 1 smallest of the others are kept for the end, where no other work can hide them,
// largest first. The first stage is then idle twice: until the first gradient arrives,
// where P - 1 microbatches run, each chosen closest to its even share of what is left of that
// interval; and in every turn until the next gradient arrives, where one microbatch runs, the
// closest to that interval. Intervals come from the 1F1B timeline of the microbatches chosen so far
// (communication free). Ties go to the smaller, then to the lower index.
//
// Shapes    result: [num_microbatches], a permutation.
// Requires  at least one stage; as many entries for every stage, forward and backward.
// Cost      O(microbatches × (microbatches + stages)).
// Source    DistTrain (arXiv 2408.04275), inter-microbatch reordering, after our notes of it; the
//           rule for the first interval and the order of the last are ours.
std::vector<int> interval_order(const ChainTimes& times);

}  // namespace entrain
