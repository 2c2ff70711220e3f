// Layers specific to an audio encoder: Whisper's two convolutions and positions before the
// transformer, and the selection of the tokens that the projector merges.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// In the order of an audio embedding's parameters.
struct AudioEmbedding {
  at::Tensor weight1;         // [hidden, mel bands, kMelKernel]
  at::Tensor bias1;           // [hidden]
  at::Tensor weight2;         // [hidden, hidden, kMelKernel]
  at::Tensor bias2;           // [hidden]
  at::Tensor positions = {};  // [tokens of a full window, hidden]; undefined: sinusoids()
};

// GELU(conv2(GELU(conv1(mel)))) + positions, for each segment separately: the first convolution
// keeps a segment's frames, the second, of stride 2, leaves ⌈frames / 2⌉ tokens; both pad the
// segment with zeros. A segment may have one frame more than the two of each token: what its last
// token sees instead of zeros. Differentiable, but positions get no gradient; both weight gradients
// may be deferred (weight_gradients.h).
//
// Shapes    mel: [Σ frames, mel bands]; result: [T, hidden].
// Requires  every segment's frames are set.
// Cost      keeps each convolution's input three times (second: one and a half times).
at::Tensor audio_embedding(const AudioEmbedding& weights,
                           const at::Tensor& mel,
                           std::span<const SegmentGrid> segments);

// Whisper's fixed positions, from 0 in every segment: sines, then cosines, with wavelengths from
// 2π to 20,000π tokens.
//
// Shapes    result: [T, hidden]. Requires  hidden >= 4, even.
at::Tensor sinusoids(std::span<const SegmentGrid> segments,
                     std::int64_t hidden,
                     const at::TensorOptions& options);

// The same for positions 0 … tokens - 1 of one segment. Shapes  result: [tokens, hidden] float64.
at::Tensor sinusoid_table(std::int64_t tokens, std::int64_t hidden);

// The rows that become features: the first 2 · features of each segment.
//
// Shapes    tokens: [T, D]; result: [2 · Σ features, D].
at::Tensor merged_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments);

// The rows of patches: all but the class tokens.
at::Tensor patch_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments);

}  // namespace entrain::engine
