// Causal attention of a sample that is cut into chunks, each with its own autograd graph.
//
// Read first: PackedItem. A chunk's rows attend to their own keys and values and to those kept by
// earlier chunks of the sample. Kept tensors are leaves: the backward of later chunks accumulates
// gradients there, and the chunk's own backward, which runs later, uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/positions.h"

namespace entrain::engine {

// Keys and values of one chunk on one stage. They share storage with the forward that made them.
struct ChunkKeyValues {
  bool takes_gradients = false;    // the chunk takes part in backward on this stage
  std::vector<at::Tensor> keys;    // [decoder layer of the stage], each [rows, G, D], rotated
  std::vector<at::Tensor> values;  // the same shapes
};
using ChunkKeyValuesPtr = std::shared_ptr<ChunkKeyValues>;

// Consecutive tokens of one sample in an LLM microbatch: the whole sample, or a chunk.
struct PackedItem {
  std::int64_t rows = 0;
  std::int64_t begin = 0;                       // index of the first row's token in the sample
  std::vector<ChunkKeyValuesPtr> earlier = {};  // of the tokens before `begin`, in order
  ChunkKeyValuesPtr own = nullptr;              // filled by the forward if a later chunk follows
  std::vector<AxisPosition> positions = {};     // [rows] under M-RoPE, else empty
};

// Items for whole samples of these lengths.
std::vector<PackedItem> whole_items(std::span<const std::int64_t> lengths);

// The tensors with gradients that a layer's forward reads besides its input and parameters.
std::vector<at::Tensor> kept_leaves(std::span<const PackedItem> items, std::size_t layer);

// Causal attention within each item's sample, including the keys and values kept by earlier chunks.
// Stores an item's keys and values if it has `own`. A layer that is recomputed keeps those of
// its first forward.
//
// Shapes   query: [T, H, D]; key, value: [T, G, D] with G dividing H; items' rows sum to T;
//          result: [T, H·D]. `layer` counts the stage's decoder layers from 0.
// Requires layers in order; all earlier chunks that an item reads have run.
at::Tensor packed_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            std::span<const PackedItem> items,
                            std::size_t layer);

// Attention of the last rows of `keys`: the queries belong to them, and row i sees keys up to i.
//
// Shapes   query: [n, H, D]; keys, values: pieces [n_p, G, D], the last one with n rows; result:
//          [n, H·D].
// Cost     on CPU one flash kernel a piece, forward and backward, each with the softmax sums of the
//          whole row, so nothing of size n × t is held; elsewhere one attention with a full mask.
at::Tensor chunk_attention(const at::Tensor& query,
                           std::span<const at::Tensor> keys,
                           std::span<const at::Tensor> values);

// The same with a mask, on any device.
at::Tensor chunk_attention_masked(const at::Tensor& query,
                                  std::span<const at::Tensor> keys,
                                  std::span<const at::Tensor> values);

}  // namespace entrain::engine
