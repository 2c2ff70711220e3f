#include "entrain/engine/pipeline/paced_compute.h"

#include <thread>

#include "entrain/core/base/at.h"
#include "entrain/core/graph/step_graph.h"

namespace entrain::engine {

void wait_until(std::chrono::steady_clock::time_point target) {
  using Steady = std::chrono::steady_clock;
  // Typical oversleep of a thread on an idle machine.
  constexpr std::chrono::microseconds kSpin{100};
  if (target - Steady::now() > kSpin) {
    std::this_thread::sleep_until(target - kSpin);
  }
  while (Steady::now() < target) {
    std::this_thread::yield();
  }
}

std::vector<simulation::Bucket> PacedReduction::buckets(const Program& program,
                                                        const StepCosts& costs,
                                                        int lane,
                                                        Comm& comm,
                                                        const std::vector<int>& ranks) const {
  const auto num_stages = static_cast<std::int64_t>(last_.size());
  at::Tensor own = at::empty({2 * num_stages}, at::kLong);
  for (std::int64_t stage = 0; stage < num_stages; ++stage) {
    own[2 * stage] = last_[at(stage)].start;
    own[2 * stage + 1] = last_[at(stage)].finish;
  }
  const at::Tensor all = comm.all_gather(own, ranks);
  const StageGraph stages = stage_graph(program, costs.link);
  simulation::Buckets buckets(program, stages, costs, costs.reduce_buckets);
  const std::int64_t* times = all.const_data_ptr<std::int64_t>();
  for (std::size_t replica = 0; replica < ranks.size(); ++replica) {
    for (const StageRef& ref : program.lanes[at(lane)]) {
      buckets.made(static_cast<int>(replica), ref.module, ref.stage, times[0], times[1]);
      times += 2;
    }
  }
  return buckets.run(lane, 0);
}

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
