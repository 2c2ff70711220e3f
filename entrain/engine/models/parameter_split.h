// How a parameter is sharded among the ranks of a lane under tensor parallelism.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/parameters.h"

namespace entrain::engine {

// Shape of one rank's shard. Requires  num_ranks divides every block.
std::vector<std::int64_t> part_shape(std::vector<std::int64_t> whole,
                                     const ParameterSplit& split,
                                     int num_ranks);

// The rank's shard of `whole`: a view, or a copy if its blocks are not contiguous.
at::Tensor part_of(const at::Tensor& whole, const ParameterSplit& split, int rank, int num_ranks);

// The inverse. Shapes  parts: [rank], equal shapes; only the first is used if it is replicated.
at::Tensor joined_parts(std::span<const at::Tensor> parts, const ParameterSplit& split);

}  // namespace entrain::engine
