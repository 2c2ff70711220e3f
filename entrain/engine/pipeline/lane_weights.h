// A lane's weights in two precisions: those used by forward and backward, and the float32
// values that the optimizer updates.
//
// Read first: LaneWeights. If both precisions are float32 they are the same numbers in the same
// memory.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/flat_layout.h"

namespace entrain::engine {

class LaneWeights {
 public:
  // Takes `parameters`, whose values are float32: trained ones become views of one buffer of
  // `precision`, frozen ones tensors of it. If it is narrower, the trained ones' float32
  // values are kept as masters. With several shards, one per replica, this rank keeps only the
  // masters of shard `shard`, and the buffer has buckets (flat_layout.h).
  LaneWeights(std::vector<NamedParameter> parameters,
              at::ScalarType precision,
              int num_shards = 1,
              int shard = 0,
              const std::vector<std::size_t>& bucket_begins = {0});

  // The parameters used by forward and backward, frozen ones included, in layer order.
  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const FlatLayout& layout() const { return layout_; }

  // Float32 values of a piece of this rank's shard, for the optimizer to change in place.
  // Shapes  [piece.size].
  [[nodiscard]] at::Tensor master(const ShardPiece& piece) const;

  // After the optimizer's step: rounds this rank's masters to the compute precision.
  void round();
  // With several shards, after round() on all ranks: gathers the other ranks' shards. `ranks`: the
  // same lane of every replica.
  void gather(Comm& comm, const std::vector<int>& ranks);

  // The full flat buffer. Shapes  own: [layout().shard_size()]; result: [layout().size()]; `own`
  // itself if there is one shard. With several, all `ranks` must call.
  [[nodiscard]] at::Tensor whole(const at::Tensor& own,
                                 Comm& comm,
                                 const std::vector<int>& ranks) const;
  // The inverse: this rank's shard of a full buffer into `own`.
  void take_shard(const at::Tensor& buffer, const at::Tensor& own) const;

  // Every weight as in a checkpoint, in layer order and float32: trained ones as masters,
  // frozen ones as used for computing. Views if possible: to be copied, not changed.
  // With several shards all `ranks` must call.
  [[nodiscard]] std::vector<NamedParameter> full(Comm& comm, const std::vector<int>& ranks) const;
  // Loads such values. Requires  names and shapes of full(), in its order.
  void set(const std::vector<NamedParameter>& values);

  // Bytes of the compute parameters, and of their masters.
  [[nodiscard]] std::int64_t parameter_bytes() const;
  [[nodiscard]] std::int64_t master_bytes() const;

 private:
  std::vector<NamedParameter> parameters_;
  FlatLayout layout_;
  int shard_ = 0;
  at::Tensor values_;   // [layout_.size()] in the precision; parameters are its views
  at::Tensor masters_;  // [layout_.shard_size()] float32; undefined if values_ are float32
};

}  // namespace entrain::engine
