// Attention within square windows of images (Qwen2.5-VL's encoder).
//
// Read first: attention_windows(). Patches are ordered by merge blocks, in which the patches of a
// window are not contiguous: queries, keys and values are permuted to window order, attended, and
// permuted back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The windows of a microbatch; full windows (window² patches) come first.
struct AttentionWindows {
  at::Tensor order;                   // [T] int64: the row at each place
  at::Tensor place;                   // [T] int64: place of each row, the inverse
  std::int64_t whole = 0;             // number of full windows
  std::vector<std::int64_t> lengths;  // patches of each window
};

// Windows of `window` × `window` patches, tiled from each segment's top left; windows at the right
// and lower edge are smaller if `window` does not divide the grid.
//
// Shapes    T = Σ segments' tokens, in the order of merge blocks (row by row, then within a block).
// Requires  window >= 1 a multiple of merge_size; grid sides divisible by merge_size.
AttentionWindows attention_windows(std::span<const SegmentGrid> segments,
                                   std::int64_t merge_size,
                                   std::int64_t window,
                                   at::Device device);

// Scaled dot-product attention within each window; never across. Differentiable.
//
// Shapes  query, key, value: [T, H, D]; result: [T, H·D].
// Cost    one kernel for all full windows, one for each smaller one.
at::Tensor window_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            const AttentionWindows& windows);

}  // namespace entrain::engine
