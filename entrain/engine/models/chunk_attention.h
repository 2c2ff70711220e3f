// Causal attention of a sample that is cut into chunks, each in a graph of its own.
//
// Read first: PackedItem. A chunk's rows attend to the keys and values that earlier chunks of the
// sample have kept, and to their own. Kept tensors are leaves: the backward of later chunks leaves
// gradients there, and the chunk's own backward, which comes after, takes them along.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>

namespace entrain::engine {

// Keys and values of one chunk on one stage, shared with the storage of the forward that made them.
struct ChunkKeyValues {
  bool takes_gradients = false;    // the chunk takes part in backward on this stage
  std::vector<at::Tensor> keys;    // [decoder layer of the stage], each [rows, G, D], rotated
  std::vector<at::Tensor> values;  // the same shapes
};
using ChunkKeyValuesPtr = std::shared_ptr<ChunkKeyValues>;

// Consecutive tokens of one sample in an LLM microbatch: all of them, or a chunk.
struct PackedItem {
  std::int64_t rows = 0;
  std::int64_t begin = 0;                       // token of the sample that is the first row
  std::vector<ChunkKeyValuesPtr> earlier = {};  // of the tokens before `begin`, in order
  ChunkKeyValuesPtr own = nullptr;              // filled by the forward where a later chunk follows
};

// Whole samples of these lengths.
std::vector<PackedItem> whole_items(std::span<const std::int64_t> lengths);

// The tensors that a layer's forward reads apart from its input and parameters and that take
// gradients.
std::vector<at::Tensor> kept_leaves(std::span<const PackedItem> items, std::size_t layer);

// Causal attention within each item's sample, with what earlier chunks have kept; keeps the own
// keys and values of items that have a place for them. A layer that is recomputed keeps those of
// its first forward.
//
// Shapes   query: [T, H, D]; key, value: [T, G, D] with G dividing H; items' rows sum to T;
//          result: [T, H·D]. `layer` counts the stage's decoder layers from 0.
// Requires layers in order; what an item reads of earlier chunks is there.
at::Tensor packed_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            std::span<const PackedItem> items,
                            std::size_t layer);

// Rows that follow those of `keys` but the last; the last are their own: row i sees them up to i.
//
// Shapes   query: [n, H, D]; keys, values: pieces [n_p, G, D], the last one with n rows; result:
//          [n, H·D].
// Cost     on CPU one flash kernel a piece, each forward and backward with the sums of the whole
//          row, so nothing of size n × t is held; elsewhere one attention with a mask of that size.
at::Tensor chunk_attention(const at::Tensor& query,
                           std::span<const at::Tensor> keys,
                           std::span<const at::Tensor> values);

// The same with a mask, whatever the device.
at::Tensor chunk_attention_masked(const at::Tensor& query,
                                  std::span<const at::Tensor> keys,
                                  std::span<const at::Tensor> values);

}  // namespace entrain::engine
