// The computation of a lane's operations: by the model (real_compute.h), or by waiting for the
// times that the cost model predicts (paced_compute.h).
//
// Read first: LaneCompute. Order, messages and errors are handled in lane_run.h.
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
  // The lane's stage, by its number there, whose last weight gradients in this update come from
  // this operation; -1: none.
  int last_for_stage = -1;
};

// Called by the lane's own thread, in the order of the lane's list.
class LaneCompute {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point start;
    Clock::time_point finish;
  };

  virtual ~LaneCompute() = default;

  // Called before and after a step's operations. Requires  all inputs outlive the step.
  // Throws  InternalError if one half of an operation is missing.
  virtual void begin_step(const StepInputs& inputs, RunMode mode) = 0;
  virtual void end_step() = 0;

  // What the forward reads besides messages.
  virtual void read(const UnitWork& work, UnitInput& input) = 0;
  // Shapes   result: output_shape(), without graph; undefined on the LLM's last stage.
  virtual at::Tensor forward(const UnitWork& work, UnitInput& input) = 0;
  // A whole backward or, if `split`, its input half. `gradient`: of the output, undefined on the
  // LLM's last stage. Gradients of UnitInput::features are stored in their leaves.
  // Shapes   result: as the input from the previous stage; undefined if there is none.
  virtual at::Tensor backward(const UnitWork& work, const at::Tensor& gradient, bool split) = 0;
  virtual void backward_weight(const UnitWork& work) = 0;
  // Called after a backward or a weight half that began at `start`, once its time is recorded.
  virtual void note_end(const UnitWork& work, Clock::time_point start) = 0;
  // Cross-entropy summed over this lane's targets, over the forwards since the last call.
  virtual double take_losses() = 0;

  // Once per update, in this order.
  // Combines partial gradients of several ranks of the replica; called before either or both
  // of the next two.
  virtual void join_gradients() = 0;
  // Returns  the times of reductions overlapped with compute; empty: there were none.
  virtual std::optional<std::vector<Span>> reduce_gradients() = 0;
  // Returns  the global norm before clipping.
  virtual double clip_gradients() = 0;
  // `step` may be empty: weights are unchanged.
  virtual void step_optimizer(const std::function<void()>& step) = 0;
  virtual void gather_parameters() = 0;

  // Between two steps of an update: scales the gradients accumulated so far.
  virtual void scale_gradients(double factor) = 0;

  // The device whose clock times the operations.
  [[nodiscard]] virtual at::Device device() const = 0;
};

}  // namespace entrain::engine
