// A lane's gradients once per update: sum over replicas, global norm, clipping.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/flat_layout.h"

namespace entrain::engine {

// One float32 buffer that backward passes accumulate into, whatever their precision (float64 if
// parameters are float64).
class LaneGradients {
 public:
  // Gives the trainable ones of `parameters` a gradient of zeros, a view of the buffer; autograd
  // accumulates in place. With several shards, one per replica, this rank keeps only the sum of
  // shard `shard`, and the buffer has buckets (flat_layout.h).
  //
  // `tensor_rank`: among the ranks that share the lane. Of parameters replicated on them, only the
  // first rank counts the norm.
  explicit LaneGradients(const std::vector<NamedParameter>& parameters,
                         int num_shards = 1,
                         int shard = 0,
                         int tensor_rank = 0,
                         const std::vector<std::size_t>& bucket_begins = {0});

  // Sets all gradients to zero.
  void clear();

  // All-reduces, over the ranks that share the lane, the partial gradients of replicated
  // parameters (tensor_group.h). Once per step, before reduce().
  void sum_whole(const TensorGroup& group);

  // Scales all gradients, before they are summed over replicas.
  void scale(double factor);

  // Sums the gradients over `ranks`, the same lane of every replica, in rank order. With several
  // shards each rank gets only the sum of its own shard; the rest is no longer valid, and must not
  // change before all ranks have returned.
  void reduce(Comm& comm, const std::vector<int>& ranks);

  // With several shards, before reduce(): declares the last unsent bucket complete, so that its
  // exchange begins. Does not block. All ranks send buckets in the same order.
  void send_bucket(Comm& comm, const std::vector<int>& ranks);
  [[nodiscard]] std::size_t buckets_to_send() const { return layout_.buckets().size() - sent_; }

  // Global norm over `ranks`, which together hold all gradients: all lanes of this replica, or with
  // several shards of all replicas. Every rank gets the same number. Scales in place to
  // `clip_norm` if the norm is larger (0: never).
  double clip(Comm& comm, const std::vector<int>& ranks, double clip_norm);

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  // Position of the sums after reduce(): this rank's pieces. Shapes  [layout().size()]; undefined
  // without parameters.
  [[nodiscard]] const at::Tensor& buffer() const { return buffer_; }

 private:
  // This rank's slice of a bucket, as sent by the other ranks.
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
