// What happens to a lane's gradients once an update: sum over replicas, global norm, clipping.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/flat_layout.h"

namespace entrain::engine {

// One float32 buffer that backward passes add to, whatever they compute in (float64 where
// parameters are float64).
class LaneGradients {
 public:
  LaneGradients() = default;  // of a lane without trainable parameters
  // Gives the trainable ones of `parameters` a gradient of zeros, a view of the buffer; autograd
  // adds to it in place. With several shards, one a replica, this rank keeps the sum of shard
  // `shard` alone, and the buffer has buckets (flat_layout.h).
  //
  // `tensor_rank`: of those that share the lane, all of whom hold some parameters whole; the first
  // one alone counts these in the norm.
  explicit LaneGradients(const std::vector<NamedParameter>& parameters,
                         int num_shards = 1,
                         int shard = 0,
                         int tensor_rank = 0,
                         const std::vector<std::size_t>& bucket_begins = {0});

  // Sets all gradients to zero.
  void clear();

  // Sums, over the ranks that share the lane, the gradients of parameters that all of them hold
  // whole: each has those of its own rows (tensor_group.h). Once a step, before reduce().
  void sum_whole(const TensorGroup& group);

  // Multiplies all gradients, before they are summed over replicas.
  void scale(double factor);

  // Sums the gradients over `ranks`, the same lane of every replica, in rank order. With several
  // shards each rank has the sum of its own shard only, the rest is no longer of use, and must not
  // change before all ranks are back from here.
  void reduce(Comm& comm, const std::vector<int>& ranks);

  // With several shards, before reduce(): nothing is added to the last bucket any more that has not
  // been sent, so that its exchange begins. Does not block. All ranks send buckets in one order.
  void send_bucket(Comm& comm, const std::vector<int>& ranks);
  [[nodiscard]] std::size_t buckets_to_send() const { return layout_.buckets().size() - sent_; }

  // Global norm over `ranks`, which hold all of it between them: all lanes of this replica, or with
  // several shards of all replicas. Every rank of the run gets the same number. Scales in place to
  // `clip_norm` where the norm is larger (0: never).
  double clip(Comm& comm, const std::vector<int>& ranks, double clip_norm);

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  // Where sums are after reduce(): in this rank's pieces. Shapes  [layout().size()]; undefined
  // without parameters.
  [[nodiscard]] const at::Tensor& buffer() const { return buffer_; }

 private:
  // What other ranks sent of this rank's slice of a bucket.
  using Incoming = std::vector<std::unique_ptr<PendingReceive>>;  // [rank of the group]; own: null

  void sum_slices(const std::vector<int>& ranks);

  FlatLayout layout_;
  int shard_ = 0;
  bool counts_whole_ = true;
  at::Tensor buffer_;               // [layout_.size()], or undefined
  std::vector<Incoming> incoming_;  // [bucket that was sent, from the last one down]
  std::size_t sent_ = 0;
};

}  // namespace entrain::engine
