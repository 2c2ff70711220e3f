// Positions of a lane's trained parameters, concatenated in flat buffers of values, gradients or
// moments.
//
// Read first: FlatLayout. A buffer is cut into buckets of whole parameters. If the optimizer
// is sharded, each bucket is cut into equal slices, one per replica; a replica's shard is its
// slice of every bucket, so that all replicas share each bucket's reduction. A slice's border may
// cut a parameter. Without sharding the whole buffer is one bucket and one shard.
#pragma once

#include <cstddef>
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

struct FlatBucket {
  std::size_t first_parameter = 0;  // index in the layout's parameters
  std::int64_t begin = 0;           // element of the buffer
  std::int64_t slice_size = 0;      // elements; the bucket has one slice per shard
  std::int64_t shard_begin = 0;     // position of the slice in each shard
};

// A parameter's run of elements within one shard.
struct ShardPiece {
  const FlatEntry* entry = nullptr;
  std::int64_t place = 0;  // element of the buffer
  std::int64_t begin = 0;  // element of the shard
  std::int64_t size = 0;   // elements, >= 1
};

class FlatLayout {
 public:
  // Takes the trainable ones of `parameters`, in their order. Every parameter begins at a multiple
  // of kAlignment elements; the padding between is unused. `bucket_begins`: the first
  // parameter of every bucket, rising, from 0 on; a bucket without trainable ones is dropped.
  //
  // Requires  num_shards >= 1.
  FlatLayout(const std::vector<NamedParameter>& parameters,
             int num_shards,
             const std::vector<std::size_t>& bucket_begins = {0});

  static constexpr std::int64_t kAlignment = 32;  // elements: 64 bytes in bfloat16

  [[nodiscard]] const std::vector<FlatEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::vector<FlatBucket>& buckets() const { return buckets_; }
  [[nodiscard]] std::int64_t size() const { return shard_size_ * num_shards_; }  // elements
  [[nodiscard]] std::int64_t shard_size() const { return shard_size_; }          // elements
  [[nodiscard]] int num_shards() const { return num_shards_; }

  // A shard's part of a bucket. Shapes  buffer: [size()]; result: [slice_size], a view.
  [[nodiscard]] at::Tensor slice_of(const at::Tensor& buffer,
                                    const FlatBucket& bucket,
                                    int shard) const;
  // Extracts a shard, and writes one back. Shapes  buffer: [size()]; own, result:
  // [shard_size()], a copy if there are several shards.
  [[nodiscard]] at::Tensor shard_of(const at::Tensor& buffer, int shard) const;
  void put_shard(const at::Tensor& own, int shard, const at::Tensor& buffer) const;
  // A buffer from all shards, concatenated. Shapes  shards, result: [size()].
  [[nodiscard]] at::Tensor joined(const at::Tensor& shards) const;
  void put_shards(const at::Tensor& shards, const at::Tensor& buffer) const;
  // The pieces of a shard, in order; they point into this layout.
  [[nodiscard]] std::vector<ShardPiece> pieces(int shard) const;
  // All parameters' views of a buffer in their shapes, as "NAMEsuffix". Shapes  buffer: [size()].
  [[nodiscard]] std::vector<NamedParameter> views(const at::Tensor& buffer,
                                                  std::string_view suffix = "") const;

 private:
  std::vector<FlatEntry> entries_;
  std::vector<FlatBucket> buckets_;
  std::int64_t shard_size_ = 0;
  int num_shards_ = 1;
};

// Cuts every stage's trainable parameters into at most `per_stage` buckets of about
// equal size: FlatLayout's bucket_begins. `stage_begins`: the first parameter of every
// stage, rising, from 0 on.
std::vector<std::size_t> bucket_begins(const std::vector<NamedParameter>& parameters,
                                       const std::vector<std::size_t>& stage_begins,
                                       int per_stage);

}  // namespace entrain::engine
