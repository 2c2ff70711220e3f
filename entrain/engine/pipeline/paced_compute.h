// Waits for each operation's predicted time instead of computing: schedules and messages run on any
// machine as on the one that the costs describe. No parameters, no gradients; tensors have
// the right shapes and undefined values.
//
// Read first: PacedCompute.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/buckets.h"
#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

// Returns at `target` or as soon after as the machine allows: sleeps until shortly before, then
// yields its core in a loop.
void wait_until(std::chrono::steady_clock::time_point target);

// The reductions of one lane in one step, which overlap compute.
class PacedReduction {
 public:
  explicit PacedReduction(std::size_t num_stages) : last_(num_stages) {}

  // Reports when the last operation with weight gradients of a stage, by its number on the lane,
  // ran, relative to the step's start.
  void ran(std::size_t stage, std::chrono::nanoseconds start, std::chrono::nanoseconds finish) {
    last_[stage] = {start.count(), finish.count()};
  }

  // End times of the lane's buckets relative to the step's start, as in the simulator (buckets.h),
  // for the measured operations. All of `ranks`, the same lane of every replica, call this
  // together.
  std::vector<simulation::Bucket> buckets(const Program& program,
                                          const StepCosts& costs,
                                          int lane,
                                          Comm& comm,
                                          const std::vector<int>& ranks) const;

 private:
  std::vector<simulation::Bucket> last_;  // [stage of the lane]
};

class PacedCompute : public LaneCompute {
 public:
  // Requires  everything `lane` refers to outlives this object.
  explicit PacedCompute(const LaneContext& lane);

  void begin_step(const StepInputs& inputs, RunMode mode) override;
  void end_step() override {}
  void read(const UnitWork& work, UnitInput& input) override;
  at::Tensor forward(const UnitWork& work, UnitInput& input) override;
  at::Tensor backward(const UnitWork& work, const at::Tensor& gradient, bool split) override;
  void backward_weight(const UnitWork& work) override;
  void note_end(const UnitWork& work, Clock::time_point start) override;
  double take_losses() override { return 0; }
  void join_gradients() override {}
  std::optional<std::vector<Span>> reduce_gradients() override;
  double clip_gradients() override { return 0; }
  void step_optimizer(const std::function<void()>& step) override;
  // Its time is part of the optimizer's step.
  void gather_parameters() override {}
  void scale_gradients(double /*factor*/) override {}
  [[nodiscard]] at::Device device() const override { return at::kCPU; }  // waits on the host

 private:
  void compute(OperationKind kind, const UnitWork& work);
  [[nodiscard]] at::Tensor tensor_of(const UnitKey& unit, const Group& group) const;
  [[nodiscard]] std::chrono::nanoseconds sum_over_stages(
      std::chrono::nanoseconds StageCosts::*member) const;

  LaneContext lane_;
  const StepInputs* inputs_ = nullptr;  // of the current step
  PacedReduction reduction_;
};

}  // namespace entrain::engine
