// Attention within square windows of images (Qwen2.5-VL's encoder).
//
// Read first: attention_windows(). Patches stand in the order of merge blocks, in which a window's
// are not neighbours: queries, keys and values are brought into the order of windows, attended, and
// brought back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The windows of a microbatch: those that hold window² patches first.
struct AttentionWindows {
  at::Tensor order;                   // [T] int64: row that stands at each place
  at::Tensor place;                   // [T] int64: place of each row, the inverse
  std::int64_t whole = 0;             // windows of window² patches
  std::vector<std::int64_t> lengths;  // patches of each window
};

// Windows of `window` × `window` patches from each segment's top left; those at its right and lower
// edge hold less where it does not divide.
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
// Cost    one kernel for all whole windows, one for each smaller one.
at::Tensor window_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            const AttentionWindows& windows);

}  // namespace entrain::engine
