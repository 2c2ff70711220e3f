// Waits for each operation's predicted time instead of computing: schedules and messages run on any
// machine as on the one that the costs describe. No parameters, no gradients; tensors have
// the right shapes and undefined values.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/paced_reduction.h"
#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

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
