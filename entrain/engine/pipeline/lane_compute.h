// What computes a lane's operations: the model (real_compute.h), or waiting for the times that the
// cost model predicts (paced_compute.h).
//
// Read first: LaneCompute. Order, messages and errors are the lane run's business (lane_run.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/program.h"

#include "entrain/engine/pipeline/lane_step.h"
#include "entrain/engine/pipeline/unit_compute.h"

namespace entrain::engine {

// A unit's operation on this lane.
struct UnitWork {
  const UnitKey& unit;
  const Group& group;
  bool with_graph = false;  // a backward follows
  // The lane's stage, by its number there, that gets no more weight gradients in this update behind
  // this operation; -1: none.
  int last_for_stage = -1;
};

// For the lane's own thread. Calls come in the order of the lane's list.
class LaneCompute {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point start;
    Clock::time_point finish;
  };

  virtual ~LaneCompute() = default;

  // Around a step's operations. Requires  everything behind `inputs` outlives the step.
  // Throws  InternalError where an operation lacked its other half.
  virtual void begin_step(const StepInputs& inputs, RunMode mode) = 0;
  virtual void end_step() = 0;

  // What the forward reads beside messages.
  virtual void read(const UnitWork& work, UnitInput& input) = 0;
  // Shapes   result: output_shape(), without graph; undefined on the LLM's last stage.
  virtual at::Tensor forward(const UnitWork& work, UnitInput& input) = 0;
  // A whole backward, or where `split` its input half. `gradient`: of the output, undefined on the
  // LLM's last stage. Those of UnitInput::features are left at their leaves.
  // Shapes   result: as the input from the stage before; undefined where none goes there.
  virtual at::Tensor backward(const UnitWork& work, const at::Tensor& gradient, bool split) = 0;
  virtual void backward_weight(const UnitWork& work) = 0;
  // Behind a backward or a weight half that began at `start`, when its time has been noted.
  virtual void note_end(const UnitWork& work, Clock::time_point start) = 0;
  // Of the forwards since the last call: cross-entropy summed over this lane's targets.
  virtual double take_losses() = 0;

  // Once an update, in this order; `ranks`: the same lane of every replica.
  // What several ranks of the replica have of a gradient comes together; called before either of
  // the next two, or both.
  virtual void join_gradients() = 0;
  // Returns  when what was exchanged beside compute went; empty: nothing was.
  virtual std::optional<std::vector<Span>> reduce_gradients(const std::vector<int>& ranks) = 0;
  // Returns  the global norm before clipping.
  virtual double clip_gradients() = 0;
  // `step` may be empty: weights stay as they are.
  virtual void step_optimizer(const std::function<void()>& step) = 0;
  virtual void gather_parameters(const std::vector<int>& ranks) = 0;

  // Between two steps of an update: multiplies the gradients added up so far.
  virtual void scale_gradients(double factor) = 0;

  // Whose clock knows when an operation ran.
  [[nodiscard]] virtual at::Device device() const = 0;
};

}  // namespace entrain::engine
