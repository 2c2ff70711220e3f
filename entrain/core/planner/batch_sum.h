// A global batch as one sample, for quantities linear in sizes: bytes, and times without launches.
#pragma once

#include <span>

#include "entrain/core/spec/workload.h"

namespace entrain {

// Sums over all samples: tokens, target tokens and attention pairs (of the separate samples,
// not of one sample of that length); one segment per encoder. A segment's grid (rows,
// columns) and its tokens in the LLM's sequence are omitted.
SampleWork batch_sum(std::span<const SampleWork> batch);

}  // namespace entrain
