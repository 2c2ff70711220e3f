// Sends gradients of a sharded optimizer to the ranks that sum them while the backward that
// computes them still runs.
//
// Read first: OverlappedReduction. A bucket of a stage's gradients is sent as soon as the stage's
// last operation with weight gradients has added to each of its parameters. Buckets are sent from
// the lane's last one to its first, in the same order on all replicas, as in the simulator
// (simulator.h). Received gradients are summed at the step's reduce_gradients, in rank order, so no
// bit depends on when they were sent.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/weight_gradients.h"
#include "entrain/engine/pipeline/gradients.h"
#include "entrain/engine/pipeline/lane_stages.h"

namespace entrain::engine {

class OverlappedReduction {
 public:
  // `late`: indices in stages.parameters() of parameters that get gradients after the last
  // backward; their buckets, and all that follow these, wait for reduce_gradients. `ranks`: the
  // same lane of every replica.
  //
  // Requires  all arguments outlive this object; `gradients` has several shards.
  OverlappedReduction(const LaneStages& stages,
                      const std::vector<char>& late,
                      LaneGradients& gradients,
                      Comm& comm,
                      std::vector<int> ranks);
  ~OverlappedReduction();
  OverlappedReduction(const OverlappedReduction&) = delete;
  OverlappedReduction& operator=(const OverlappedReduction&) = delete;

  // Called before and after a step's operations, if gradients are reduced at its end.
  void begin_step();
  void end_step() { in_step_ = false; }

  // Called around the last operation that adds to the weight gradients of a stage (its number on
  // the lane): a whole backward, or a weight half.
  void begin_last(std::size_t stage);
  void begin_last(std::size_t stage, const WeightGradients& waiting);
  // Called by a weight half when it has added to this parameter. Additions of a whole backward are
  // detected by hooks.
  void added(const at::Tensor& tensor);
  void end_last(std::size_t stage);

 private:
  class Hook;
  struct Parameter {
    at::Tensor tensor;
    std::size_t stage = 0;
    std::size_t bucket = 0;
    bool late = false;
    int additions = 0;  // remaining in the last operation
    bool complete = false;
  };

  // nullptr: a parameter of another lane; this lane has a copy.
  [[nodiscard]] Parameter* find(const at::Tensor& parameter);
  void added_to(Parameter& parameter);
  void complete(Parameter& parameter);
  void send_complete();

  LaneGradients& gradients_;
  Comm& comm_;
  std::vector<int> ranks_;
  std::vector<Parameter> parameters_;  // trained ones
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::vector<char> in_last_;    // [stage] its last operation runs
  std::vector<int> incomplete_;  // [bucket] parameters
  bool in_step_ = false;
};

}  // namespace entrain::engine
