// Gradients of a sharded optimizer on their way to the ranks that sum them, while the backward that
// makes them still runs.
//
// Read first: OverlappedReduction. A bucket of a stage's gradients is sent as soon as the stage's
// last operation with weight gradients has added to each of its parameters; buckets go from the
// lane's last one to its first, on all replicas alike, as the simulator has it (simulator.h). What
// arrives is summed at the step's reduce_gradients, in rank order, so that no bit depends on when
// it was sent.
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
  // `late`: of stages.parameters(), those that something is added to behind the last backward;
  // their buckets, and all that follow these, wait for reduce_gradients. `ranks`: the same lane of
  // every replica.
  //
  // Requires  everything behind the arguments outlives this object; `gradients` has several shards.
  OverlappedReduction(const LaneStages& stages,
                      const std::vector<char>& late,
                      LaneGradients& gradients,
                      Comm& comm,
                      std::vector<int> ranks);
  ~OverlappedReduction();
  OverlappedReduction(const OverlappedReduction&) = delete;
  OverlappedReduction& operator=(const OverlappedReduction&) = delete;

  // Around a step's operations, if gradients are reduced at its end.
  void begin_step();
  void end_step() { in_step_ = false; }

  // Around the last operation that adds to the weight gradients of a stage, by its number on the
  // lane: a whole backward, or a weight half.
  void begin_last(std::size_t stage);
  void begin_last(std::size_t stage, const WeightGradients& waiting);
  // Of a weight half: it has added to this parameter. A whole backward's additions are seen by
  // themselves.
  void added(const at::Tensor& tensor);
  void end_last(std::size_t stage);

 private:
  class Hook;
  struct Parameter {
    at::Tensor tensor;
    std::size_t stage = 0;
    std::size_t bucket = 0;
    bool late = false;
    int additions = 0;  // still to come in the last operation
    bool complete = false;
  };

  // nullptr: another lane's, of which this one has a copy.
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
