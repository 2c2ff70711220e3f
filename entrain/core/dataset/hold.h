// Oversized samples held across steps: consecutive global batches exchange samples, so that few
// steps wait for samples that are much heavier than the others.
//
// Read first: hold_oversized(); GlobalBatchSampler applies it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace entrain {

inline constexpr int kMostHeldSteps = 256;

struct Hold {
  int steps = 1;                          // of a window, in [1, kMostHeldSteps]; 1: off
  std::span<const std::int64_t> weights;  // [sample] >= 0; may be empty if off
};

// Rearranges the global batches of one window. A sample is oversized if it weighs more than four
// mean samples of the window. A step takes oversized samples, heaviest first, while its work is at
// most twice the mean of the window's steps; the next step begins with the heaviest one left, and
// is the one that drew it if that is not yet filled. Ordinary samples keep their step, but where
// room is needed: then a step's heaviest ordinary ones go to where oversized samples were, each to
// the step with the least work.
//
// Shapes    rows, result: [steps · global batch], a step after the other; values index weights.
// Requires  steps >= 1 divides the number of rows; the sum of their weights is below 2^61.
// Ensures   the result is a permutation of rows; a sample that keeps its step keeps its place;
//           equal inputs give equal outputs.
// Cost      O(n log n + oversized · steps), n rows.
// Source    WLB-LLM (arXiv 2503.17924) section 4 delays documents in queues until every microbatch
//           gets one; here steps exchange them, so that every step keeps its number of samples
//           and nothing is queued across windows.
std::vector<int> hold_oversized(std::span<const int> rows,
                                int steps,
                                std::span<const std::int64_t> weights);

}  // namespace entrain
