// Layers specific to a vision encoder: the patch embedding with learned positions and a class
// token, and the projector, which audio encoders share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {

// Of every segment its tiles, each as a segment of its own.
std::vector<SegmentGrid> tiles_of(std::span<const SegmentGrid> segments);

// `weights` in the order of parameters_of(), of the encoder's layer 0.
//
// Shapes  patches: [Σ rows · columns, patch_values()], replicated; result: [.., hidden], sharded
// rows
//         of all segments' tokens, a class token before each segment's patches.
// Requires  segments of one tile.
at::Tensor patch_embedding(const EncoderSpec& encoder,
                           const TensorGroupPtr& group,
                           std::span<const NamedParameter> weights,
                           const at::Tensor& patches,
                           std::span<const SegmentGrid> segments);

// `weights` in the order of parameters_of(), of the encoder's last layer.
//
// Shapes  input: sharded rows of the `tokens`, [.., feature_levels() · hidden]; result: [features,
//         feature_levels() · llm_hidden], replicated.
at::Tensor projector(const EncoderSpec& encoder,
                     const TensorGroupPtr& group,
                     std::span<const NamedParameter> weights,
                     const at::Tensor& input,
                     std::int64_t tokens,
                     std::span<const SegmentGrid> segments);

}  // namespace entrain::engine
