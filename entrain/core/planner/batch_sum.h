// A global batch as one sample, for what is linear in sizes: bytes, and times without launches.
#pragma once

#include <span>

#include "entrain/core/spec/workload.h"

namespace entrain {

// Sums over all samples: tokens, target tokens and attention pairs (of the samples by themselves,
// which are not those of a sample so long); of every encoder one segment. A segment's grid (rows,
// columns) and what it puts into the LLM's sequence are left out.
SampleWork batch_sum(std::span<const SampleWork> batch);

}  // namespace entrain
