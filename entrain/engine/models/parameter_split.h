// How a parameter divides among the ranks of a lane under tensor parallelism.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

namespace entrain::engine {

// The axis that is cut into equal runs, one a rank. Where the axis holds several blocks, as the
// queries, keys and values of one matrix, every block is cut and a rank has a run of each.
struct ParameterSplit {
  int axis = -1;   // -1: every rank holds the whole parameter
  int blocks = 1;  // >= 1, divides the axis
  [[nodiscard]] bool whole() const { return axis < 0; }
  bool operator==(const ParameterSplit&) const = default;
};

// Shape of one rank's part. Requires  num_ranks divides every block.
std::vector<std::int64_t> part_shape(std::vector<std::int64_t> whole,
                                     const ParameterSplit& split,
                                     int num_ranks);

// The rank's part of `whole`: a view, or a copy where blocks lie apart.
at::Tensor part_of(const at::Tensor& whole, const ParameterSplit& split, int rank, int num_ranks);

// The inverse. Shapes  parts: [rank], alike; the first one alone where every rank holds the whole.
at::Tensor joined_parts(std::span<const at::Tensor> parts, const ParameterSplit& split);

}  // namespace entrain::engine
