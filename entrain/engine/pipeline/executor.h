// Runs one lane's operations of a Program: real arithmetic, real messages, one autograd graph per
// group.
//
// Read first: Executor::run(). It knows nothing of policies or schedules: the Program is the order,
// and the shapes follow from the assignment, so ranks never exchange sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/cost/memory.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/flat_layout.h"
#include "entrain/engine/pipeline/lane_step.h"

namespace entrain::engine {

// A run of one trained parameter's elements that this rank updates.
struct TrainedPiece {
  std::string name;        // of the parameter
  std::string part;        // module, or "projector"
  bool matrix = false;     // the parameter has two dimensions or more
  std::int64_t begin = 0;  // element of the rank's shard of flat buffers (flat_layout.h)
  at::Tensor value;        // [n] float32, changed in place
  at::Tensor gradient;     // [n] float32
};

class Executor {
 public:
  // Builds the stages of this rank's lane (rank_places.h) with their parameters; none if paced.
  //
  // Requires  one rank for every place of the plan.
  // Throws    InvalidInput as check_runnable() does.
  Executor(const ModelSpec& model, const Plan& plan, Comm& comm, const ExecutorOptions& options);
  ~Executor();

  // Runs the step. `optimizer_step` is called at the Program's optimizer_step operation, with
  // gradients reduced over replicas and already clipped in place, and changes trained(); it may be
  // empty. It is not called if a loss or the norm is not finite, which all ranks detect alike.
  // Gradients are zeroed when an update begins; every trainable parameter has one. Steps that do
  // not end an update skip the reduction and everything after it. Under Plan::shard_optimizer the
  // reduction begins while the last backward runs, if enabled and not paced; paced runs use
  // StepCosts::reduce_buckets.
  //
  // Throws  InvalidInput for a program with tied parameters.
  //         A failure of this rank keeps its type (torch's errors become SystemFailure), names
  //         rank, step, operation, sample ids and the last operations, and aborts the communicator
  //         first, so that every other rank stops with CommAborted.
  StepOutcome run(const StepInputs& inputs,
                  const std::function<void()>& optimizer_step,
                  RunMode mode = RunMode::kTrain);

  // Between two steps of an update: scales the gradients accumulated so far.
  void scale_gradients(double factor);

  // Runs only forward operations, without gradients: the sum of losses of this lane's targets.
  double evaluate(const StepInputs& inputs);

  // The parameters used by forward and backward: all parameters of the lane's stages, frozen ones
  // included, in layer order.
  [[nodiscard]] std::vector<NamedParameter> parameters() const;

  // The parameters the optimizer updates, in the order of parameters(): under Plan::shard_optimizer
  // this rank's shard of the lane. Shapes  as long as the executor
  // lives, always the same tensors.
  [[nodiscard]] std::vector<TrainedPiece> trained() const;
  [[nodiscard]] const FlatLayout& layout() const;

  // Bytes this rank holds all the time: parameters, gradients, and as optimizer
  // state the float32 masters of narrower parameters.
  [[nodiscard]] StateBytes held_bytes() const;

  // Every full weight of the lane in float32, under its name, as in checkpoints: to be
  // copied, not changed. All ranks that share the lane and, under Plan::shard_optimizer, all its
  // replicas must call this and whole() together.
  [[nodiscard]] std::vector<NamedParameter> weights() const;
  // Loads such values, for computing and for training.
  void set_weights(const std::vector<NamedParameter>& values);
  // The same for a flat buffer with the layout of trained(): the values of every trained parameter,
  // as "NAMEsuffix". Shapes  own: [layout().shard_size()].
  [[nodiscard]] std::vector<NamedParameter> whole(const at::Tensor& own,
                                                  std::string_view suffix = "") const;
  // Loads such values into `own`, with zeros between them.
  void take(const std::vector<NamedParameter>& whole, const at::Tensor& own) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
