// The layers of all modules, on packed rows: no padding, no batch axis.
//
// Read first: segment_attention(). Every function is differentiable, works on any device and in any
// floating dtype, and changes none of its inputs (a deferred weight gradient may hold them until
// later).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/positions.h"
#include "entrain/core/spec/vision_sizes.h"

#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {

// Patches of one segment in rows × columns; tokens run in merge blocks: each merge_size ×
// merge_size block of patches is consecutive (row by row inside), blocks row by row. A window of
// audio is one column of tokens.
struct SegmentGrid {
  std::int64_t rows = 0;      // patches, divisible by merge_size
  std::int64_t columns = 0;   // patches, divisible by merge_size
  std::int64_t frames = 0;    // audio, on the stage with layer 0: mel frames (audio_layers.h)
  std::int64_t features = 0;  // audio: LLM tokens, two tokens each; remaining tokens are dropped
  std::int64_t extra = 0;     // tokens before the patches: a class token
  // The tiles of the segment, each with so many rows, columns and extra tokens.
  FeatureCanvas canvas = {};
  [[nodiscard]] std::int64_t tokens() const {
    return canvas.tiles.count() * (extra + rows * columns);
  }
};

// Calls visit(row, column) for every patch of a grid, in the order of its tokens.
template <class Visit>
void for_each_patch(const SegmentGrid& grid, std::int64_t merge_size, const Visit& visit) {
  for (std::int64_t row = 0; row < grid.rows; row += merge_size) {
    for (std::int64_t column = 0; column < grid.columns; column += merge_size) {
      for (std::int64_t i = 0; i < merge_size * merge_size; ++i) {
        visit(row + i / merge_size, column + i % merge_size);
      }
    }
  }
}

// Rows, token ids or positions as int64 on a device. Shapes  result: [values].
at::Tensor index_tensor(std::span<const std::int64_t> values, at::Device device);

// y = x / sqrt(mean(x²) + epsilon) · weight, row by row, computed in at least float32.
//
// Shapes  input: [T, D]; weight: [D]; result: [T, D] in the input's dtype.
// Ensures the weight's gradient is accumulated and returned in at least float32.
// Cost    on CPU in float32, float64 and bfloat16 one fused pass forward and two backward, in the
//         calling thread; elsewhere a composite of ATen operators. Keeps input and one number a
//         row.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);

// y = (x − mean(x)) / sqrt(variance(x) + epsilon) · weight + bias, row by row, computed in at least
// float32.
//
// Shapes  as rms_norm()'s; bias: [D].
// Ensures the gradients of weight and bias are accumulated and returned in at least float32.
at::Tensor layer_norm(const at::Tensor& input,
                      const at::Tensor& weight,
                      const at::Tensor& bias,
                      double epsilon);

// rms_norm() by plain operators, on any device.
at::Tensor rms_norm_composite(const at::Tensor& input, const at::Tensor& weight, double epsilon);

// Angles of rotary positions. The head's dimensions are cut into `axes` equal spans, one for each
// position axis; within a span of width d, dimension i < d/2 rotates with i + d/2 (the rotate-half
// convention of Hugging Face's Llama) by position · theta^(-2i/d).
// In float32 or wider: bfloat16 cannot distinguish positions beyond a few hundred.
struct RotaryTable {
  at::Tensor cosine;  // [T, 1, axes, head_dim / (2·axes)]
  at::Tensor sine;    // the same shape
};

// One axis: for each run of rows its first position and how many follow one another.
// Requires  head_dim even; as many begins as lengths.
RotaryTable rotary_table(std::span<const std::int64_t> begins,
                         std::span<const std::int64_t> lengths,
                         std::int64_t head_dim,
                         double theta,
                         const at::TensorOptions& options,
                         const RopeScaling& scaling = {});

// Two axes, the patch's row and its column. As RotaryLayout::kSpans; under kHalves the same values
// are one span of the whole head.
// Requires  head_dim divisible by 4; grid sides divisible by merge_size.
RotaryTable rotary_table(std::span<const SegmentGrid> segments,
                         std::int64_t merge_size,
                         std::int64_t head_dim,
                         double theta,
                         RotaryLayout layout,
                         const at::TensorOptions& options);

// M-RoPE: of a head's pairs the first sections[0] rotate by time, the next sections[1] by row, the
// last by column, or `interleaved` (LlmSpec); a pair's frequency does not depend on its axis.
//
// Shapes    positions: [T].
// Requires  sections: three, their sum is half of head_dim; positions >= 0.
RotaryTable rotary_table(std::span<const AxisPosition> positions,
                         std::span<const int> sections,
                         bool interleaved,
                         double theta,
                         const at::TensorOptions& options,
                         const RopeScaling& scaling);

// Shapes  heads: [T, H, head_dim]; result: the same, contiguous.
at::Tensor rotate(const at::Tensor& heads, const RotaryTable& table);

// Scaled dot-product attention of all rows, causal or within a mask ([T, S] bool).
//
// Shapes   query: [T, H, D]; key, value: [S, G, D] with G dividing H (grouped queries);
//          result: [T, H·D].
at::Tensor dense_attention(const at::Tensor& query,
                           const at::Tensor& key,
                           const at::Tensor& value,
                           bool causal,
                           const std::optional<at::Tensor>& mask = {});

// Scaled dot-product attention within each run of rows; never across.
//
// Shapes   as dense_attention()'s, S = T; lengths sum to T.
// Cost     on a GPU one kernel for all segments, if D is a multiple of 8 up to 256; elsewhere one
//          per segment (split once, since narrow() per segment makes backward quadratic in their
//          number).
at::Tensor segment_attention(const at::Tensor& query,
                             const at::Tensor& key,
                             const at::Tensor& value,
                             std::span<const std::int64_t> lengths,
                             bool causal);

// The columns as tensors of `width`, each with memory of its own if there are several.
//
// Shapes  rows: [T, n · width]; result: n × [T, width].
std::vector<at::Tensor> side_by_side(const at::Tensor& rows, std::int64_t width);

// The rows with zeros to their right, up to `width` columns.
at::Tensor widened(const at::Tensor& rows, std::int64_t width);

struct Adapter {
  at::Tensor a;  // [rank, in]
  at::Tensor b;  // [out, rank]
  double scale = 1.0;
};

struct Matrix {
  at::Tensor weight;               // [out, in]
  std::optional<at::Tensor> bias;  // [out]
  std::optional<Adapter> adapter = {};
};

// split_linear(), and with an adapter input · Aᵀ · Bᵀ · scale added to it, whose weight gradients
// are deferred with the others. Keeps input · Aᵀ beside the input.
at::Tensor linear(const at::Tensor& input,
                  const Matrix& matrix,
                  const RecomputedInputPtr& recomputed = {});

// Of every number.
at::Tensor activated(const at::Tensor& input, Activation activation);

// down(act(gate(x)) · up(x)), or without a gate down(act(up(x))).
// Shapes  input: [T, D], recomputed by `recomputed` if given; gate, up: [I, D];
//         down: [D, I]; result: [T, D].
at::Tensor mlp(const at::Tensor& input,
               Activation activation,
               const std::optional<Matrix>& gate,
               const Matrix& up,
               const Matrix& down,
               const RecomputedInputPtr& recomputed = {});

}  // namespace entrain::engine
