#include "entrain/engine/pipeline/paced_compute.h"

#include "entrain/core/base/at.h"

#include "entrain/engine/pipeline/pacing.h"

namespace entrain::engine {
PacedCompute::PacedCompute(const LaneContext& lane)
    : lane_(lane), reduction_(lane.plan.lanes.at(at(lane.place.lane)).size()) {}

void PacedCompute::begin_step(const StepInputs& inputs, RunMode /*mode*/) {
  inputs_ = &inputs;
}

void PacedCompute::read(const UnitWork& /*work*/, UnitInput& input) {
  for (FeaturePart& part : input.features) {
    if (part.leaf.requires_grad()) {
      part.leaf.mutable_grad() = at::empty_like(part.leaf.detach());
    }
  }
}

at::Tensor PacedCompute::forward(const UnitWork& work, UnitInput& /*input*/) {
  compute(OperationKind::kForward, work);
  return is_last_llm_stage(*inputs_->program, work.unit) ? at::Tensor()
                                                         : tensor_of(work.unit, work.group);
}

at::Tensor PacedCompute::backward(const UnitWork& work,
                                  const at::Tensor& /*gradient*/,
                                  bool split) {
  compute(split ? OperationKind::kBackwardInput : OperationKind::kBackward, work);
  const UnitKey& unit = work.unit;
  const bool goes_on = unit.stage > 0 && work.group.takes_backward.at(at(unit.stage - 1)) != 0;
  return goes_on ? tensor_of({unit.module, unit.stage - 1, unit.slot, unit.group}, work.group)
                 : at::Tensor();
}

void PacedCompute::backward_weight(const UnitWork& work) {
  compute(OperationKind::kBackwardWeight, work);
}

void PacedCompute::compute(OperationKind kind, const UnitWork& work) {
  wait_until(Clock::now() + operation_time(*inputs_->costs, kind, work.unit, work.group));
}

void PacedCompute::note_end(const UnitWork& work, Clock::time_point start) {
  if (work.last_for_stage >= 0) {
    reduction_.ran(at(work.last_for_stage), start - inputs_->start, Clock::now() - inputs_->start);
  }
}

std::optional<std::vector<LaneCompute::Span>> PacedCompute::reduce_gradients() {
  if (inputs_->costs->reduce_buckets == 0) {
    wait_until(Clock::now() + sum_over_stages(&StageCosts::reduce));
    return std::nullopt;
  }
  std::vector<Span> spans;
  for (const simulation::Bucket& bucket : reduction_.buckets(*inputs_->program,
                                                             *inputs_->costs,
                                                             lane_.place.lane,
                                                             lane_.comm,
                                                             lane_.across_replicas())) {
    spans.push_back({inputs_->start + std::chrono::nanoseconds{bucket.start},
                     inputs_->start + std::chrono::nanoseconds{bucket.finish}});
    wait_until(spans.back().finish);
  }
  return spans;
}

void PacedCompute::step_optimizer(const std::function<void()>& step) {
  wait_until(Clock::now() + sum_over_stages(&StageCosts::optimizer));
  if (step) {
    step();
  }
}

at::Tensor PacedCompute::tensor_of(const UnitKey& unit, const Group& group) const {
  return at::empty(output_shape({lane_.model, *inputs_->program, *inputs_->costs}, unit, group),
                   lane_.options.message_options());
}

std::chrono::nanoseconds PacedCompute::sum_over_stages(
    std::chrono::nanoseconds StageCosts::*member) const {
  std::chrono::nanoseconds sum{0};
  for (const StageRef& ref : lane_.plan.lanes.at(at(lane_.place.lane))) {
    const ModuleCosts& module = inputs_->costs->modules.at(at(ref.module));
    sum += module.stages.at(at(ref.stage)).*member;
  }
  return sum;
}

}  // namespace entrain::engine
