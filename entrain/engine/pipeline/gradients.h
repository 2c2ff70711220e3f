// What happens to a lane's gradients once an update: sum over replicas, global norm, clipping.
#pragma once

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
  // `shard` alone.
  //
  // `tensor_rank`: of those that share the lane, all of whom hold some parameters whole; the first
  // one alone counts these in the norm.
  explicit LaneGradients(const std::vector<NamedParameter>& parameters,
                         int num_shards = 1,
                         int shard = 0,
                         int tensor_rank = 0);

  // Sets all gradients to zero.
  void clear();

  // Sums, over the ranks that share the lane, the gradients of parameters that all of them hold
  // whole: each has those of its own rows (tensor_group.h). Once a step, before reduce().
  void sum_whole(const TensorGroup& group);

  // Multiplies all gradients, before they are summed over replicas.
  void scale(double factor);

  // Sums the gradients over `ranks`, the same lane of every replica, in rank order. With several
  // shards each rank has the sum of its own shard only, the rest is no longer of use.
  void reduce(Comm& comm, const std::vector<int>& ranks);

  // Global norm over `ranks`, which hold all of it between them: all lanes of this replica, or with
  // several shards of all replicas. Every rank of the run gets the same number. Scales in place to
  // `clip_norm` where the norm is larger (0: never).
  double clip(Comm& comm, const std::vector<int>& ranks, double clip_norm);

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  // Where sums are after reduce(). Shapes  [layout().shard_size()]; undefined without parameters.
  [[nodiscard]] at::Tensor own_shard() const;

 private:
  FlatLayout layout_;
  int shard_ = 0;
  bool counts_whole_ = true;
  at::Tensor buffer_;  // [layout_.size()], or undefined
};

}  // namespace entrain::engine
