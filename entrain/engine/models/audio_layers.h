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
  at::Tensor weight1;  // [hidden, kMelBands, kMelKernel]
  at::Tensor bias1;    // [hidden]
  at::Tensor weight2;  // [hidden, hidden, kMelKernel]
  at::Tensor bias2;    // [hidden]
};

// GELU(conv2(GELU(conv1(mel)))) + positions, for each segment separately: the first convolution
// keeps a segment's frames, the second, of stride 2, leaves ⌈frames / 2⌉ tokens; both pad the
// segment with zeros. Differentiable; both weight gradients may be deferred (weight_gradients.h).
//
// Shapes    mel: [Σ frames, kMelBands]; result: [T, hidden].
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

// The rows that become features: the first 2 · features of each segment.
//
// Shapes    tokens: [T, D]; result: [2 · Σ features, D].
at::Tensor merged_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments);

// The rows of patches: all but the class tokens.
at::Tensor patch_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments);

}  // namespace entrain::engine
