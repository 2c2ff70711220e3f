// A lane's weights in two precisions: what forward and backward compute with, and the float32
// values that the optimizer changes.
//
// Read first: LaneWeights. Without a narrower precision both are the same numbers in the same
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
  LaneWeights() = default;  // of a lane without parameters
  // Takes `parameters` over, whose values are float32: trained ones become views of one buffer of
  // `precision`, frozen ones tensors of it, and where it is narrower the trained ones' float32
  // values stay here as masters. With several shards, one a replica, this rank keeps the masters of
  // shard `shard` alone, and the buffer has buckets (flat_layout.h).
  LaneWeights(std::vector<NamedParameter> parameters,
              at::ScalarType precision,
              int num_shards = 1,
              int shard = 0,
              const std::vector<std::size_t>& bucket_begins = {0});

  // What forward and backward compute with, frozen ones included, in layer order.
  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const FlatLayout& layout() const { return layout_; }

  // Float32 values of a piece of this rank's shard, for the optimizer to change in place.
  // Shapes  [piece.size].
  [[nodiscard]] at::Tensor master(const ShardPiece& piece) const;

  // After the optimizer's step: rounds this rank's masters to what is computed with.
  void round();
  // With several shards, after round() of all: brings the other ranks' shards. `ranks`: the same
  // lane of every replica.
  void gather(Comm& comm, const std::vector<int>& ranks);

  // A flat buffer whole. Shapes  own: [layout().shard_size()]; result: [layout().size()]; `own`
  // itself where there is one shard. With several all `ranks` must call.
  [[nodiscard]] at::Tensor whole(const at::Tensor& own,
                                 Comm& comm,
                                 const std::vector<int>& ranks) const;
  // The inverse: this rank's shard of a whole buffer into `own`.
  void take_shard(const at::Tensor& buffer, const at::Tensor& own) const;

  // Every weight as a checkpoint holds it, in layer order and float32: trained ones as masters,
  // frozen ones as they are computed with. Views where these exist: to be copied, not changed.
  // With several shards all `ranks` must call.
  [[nodiscard]] std::vector<NamedParameter> full(Comm& comm, const std::vector<int>& ranks) const;
  // Takes such values over. Requires  names and shapes of full(), in its order.
  void set(const std::vector<NamedParameter>& values);

  // Bytes of what forward and backward compute with, and of masters beside it.
  [[nodiscard]] std::int64_t parameter_bytes() const;
  [[nodiscard]] std::int64_t master_bytes() const;

 private:
  std::vector<NamedParameter> parameters_;
  FlatLayout layout_;
  int shard_ = 0;
  at::Tensor values_;   // [layout_.size()] in the precision; parameters are its views
  at::Tensor masters_;  // [layout_.shard_size()] float32; undefined where values_ are that wide
};

}  // namespace entrain::engine
