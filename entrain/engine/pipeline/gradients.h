// What happens to a lane's gradients once a step: sum over replicas, global norm, clipping.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

class LaneGradients {
 public:
  LaneGradients() = default;  // of a lane without trainable parameters
  // Takes the trainable ones of `parameters`.
  explicit LaneGradients(const std::vector<NamedParameter>& parameters);

  // Drops all gradients.
  void clear();

  // Of the gradients that there are.
  [[nodiscard]] std::int64_t bytes() const;

  // Sums the gradients over `ranks`, the same lane of every replica, in rank order. Parameters
  // without a gradient count as zero and have one afterwards.
  void reduce(Comm& comm, const std::vector<int>& ranks);

  // Global norm over `replica_ranks`, all lanes of this replica; every rank gets the same number,
  // and all replicas too since their gradients are equal. Scales in place to `clip_norm` where the
  // norm is larger (0: never).
  double clip(Comm& comm, const std::vector<int>& replica_ranks, double clip_norm);

 private:
  void fill_missing();

  std::vector<at::Tensor> parameters_;
  at::Tensor flat_;  // reused from step to step
};

}  // namespace entrain::engine
