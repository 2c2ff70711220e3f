// Where a lane's trained parameters lie, one after another, in flat buffers: of values, gradients,
// moments.
//
// Read first: FlatLayout. A buffer is cut into equal shards, one a replica, where the optimizer's
// state is shared out; else the whole buffer is one shard. A shard's border may cut a parameter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

struct FlatEntry {
  std::string name;                 // of the parameter
  std::vector<std::int64_t> shape;  // of the parameter
  std::int64_t begin = 0;           // element of the buffer
  std::int64_t size = 0;            // elements
  ParameterSplit split = {};        // of the parameter
};

// A parameter's run of elements within one shard.
struct ShardPiece {
  const FlatEntry* entry = nullptr;
  std::int64_t begin = 0;  // element of the shard
  std::int64_t size = 0;   // elements, >= 1
};

class FlatLayout {
 public:
  FlatLayout() = default;  // of a lane without trained parameters
  // Takes the trainable ones of `parameters`, in their order. Every parameter begins at a multiple
  // of kAlignment elements; what lies between belongs to nobody.
  //
  // Requires  num_shards >= 1.
  FlatLayout(const std::vector<NamedParameter>& parameters, int num_shards);

  static constexpr std::int64_t kAlignment = 32;  // elements: 64 bytes in bfloat16

  [[nodiscard]] const std::vector<FlatEntry>& entries() const { return entries_; }
  [[nodiscard]] std::int64_t size() const { return shard_size_ * num_shards_; }  // elements
  [[nodiscard]] std::int64_t shard_size() const { return shard_size_; }          // elements
  [[nodiscard]] int num_shards() const { return num_shards_; }

  // A shard of a buffer. Shapes  buffer: [size()]; result: [shard_size()], a view.
  [[nodiscard]] at::Tensor shard_of(const at::Tensor& buffer, int shard) const;
  // What lies in a shard, in order; points into this layout.
  [[nodiscard]] std::vector<ShardPiece> pieces(int shard) const;
  // All parameters' views of a buffer in their shapes, as "NAMEsuffix". Shapes  buffer: [size()].
  [[nodiscard]] std::vector<NamedParameter> views(const at::Tensor& buffer,
                                                  std::string_view suffix = "") const;

 private:
  std::vector<FlatEntry> entries_;
  std::int64_t shard_size_ = 0;
  int num_shards_ = 1;
};

}  // namespace entrain::engine
