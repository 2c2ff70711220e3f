// One pre-norm transformer layer, of encoders and LLM alike, as its BlockSpec describes it.
//
// Read first: run_block().
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {

// The block as one rank of `tensor_parallel` holds it: its share of heads and of the MLP.
// Requires  it divides both.
void slice_block(BlockSpec& block, int tensor_parallel);

// Attention of rotated queries and keys, within the boundaries that the caller knows.
// Shapes  query: [T, H, D]; key, value: [T, G, D]; result: [T, H·D].
using Attend = std::function<at::Tensor(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)>;

// x += attention(norm(x)), then x += mlp(norm(x)).
//
// `block`: this rank's slice. `weights` are the layer's parameters, in the order of
// parameters_of() (core/spec/parameters.h). `table`: null if nothing rotates.
//
// Shapes  input: sharded rows of the `tokens`, [.., hidden]; result likewise.
at::Tensor run_block(const BlockSpec& block,
                     const TensorGroupPtr& group,
                     std::span<const NamedParameter> weights,
                     const at::Tensor& input,
                     std::int64_t tokens,
                     const RotaryTable* table,
                     const Attend& attend);

// Of the ranks' partial sums of a matrix that is sharded by inputs the first rank's has the bias.
bool adds_bias(const TensorGroupPtr& group);
Matrix completed_by(const TensorGroupPtr& group, Matrix matrix);

}  // namespace entrain::engine
