#include "entrain/engine/pipeline/step_end.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/pipeline/pacing.h"

namespace entrain::engine {
namespace {

// The last operation of each of the lane's stages that adds to weight gradients; -1: none does.
std::vector<int> last_of_stages(const std::vector<Operation>& operations,
                                const std::vector<StageRef>& stages) {
  std::vector<int> last(stages.size(), -1);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    if (operation.kind == OperationKind::kBackward ||
        operation.kind == OperationKind::kBackwardWeight) {
      const StageRef ref{operation.unit.module, operation.unit.stage};
      const auto stage = std::find(stages.begin(), stages.end(), ref);
      last.at(at(static_cast<int>(stage - stages.begin()))) = static_cast<int>(i);
    }
  }
  return last;
}

}  // namespace

StepEnd::StepEnd(LaneContext& lane,
                 const StepInputs& inputs,
                 LaneRecorder& recorder,
                 StepOutcome& outcome)
    : lane_(lane),
      inputs_(inputs),
      recorder_(recorder),
      outcome_(outcome),
      last_of_stage_(
          last_of_stages(inputs.program->replicas.at(at(lane.replica)).lanes.at(at(lane.lane)),
                         inputs.program->lanes.at(at(lane.lane)))),
      paced_reduction_(last_of_stage_.size()) {}

void StepEnd::begin_step() {
  if (lane_.overlap != nullptr && inputs_.ends_update) {
    lane_.overlap->begin_step();
  }
}

int StepEnd::last_for_stage(int position) const {
  const auto stage = std::find(last_of_stage_.begin(), last_of_stage_.end(), position);
  return inputs_.ends_update && stage != last_of_stage_.end()
             ? static_cast<int>(stage - last_of_stage_.begin())
             : -1;
}

void StepEnd::made_gradients(int position, Clock::time_point start) {
  if (const int stage = last_for_stage(position); stage >= 0) {
    paced_reduction_.ran(at(stage), start - inputs_.start, Clock::now() - inputs_.start);
  }
}

void StepEnd::run(OperationKind kind, int position, const std::function<void()>& optimizer_step) {
  switch (kind) {
    case OperationKind::kReduceGradients:
      return reduce_gradients(position);
    case OperationKind::kClipNorm:
      return clip_norm(position);
    case OperationKind::kOptimizerStep:
      return step_optimizer(position, optimizer_step);
    case OperationKind::kGatherParameters:
      return gather_parameters(position);
    default:
      ENTRAIN_INVARIANT(false, concat("no way to run ", name_of(kind)));
  }
}

// Once a step, before whatever comes first of the gradients' sum over replicas and their norm: what
// lies on several ranks of the replica comes together.
void StepEnd::join_gradients() {
  if (!std::exchange(joined_gradients_, true)) {
    lane_.tied.give_gradient(lane_.comm);
    lane_.gradients.sum_whole(lane_.group);
  }
}

void StepEnd::reduce_gradients(int position) {
  if (lane_.overlap != nullptr) {
    lane_.overlap->end_step();
  }
  join_gradients();
  const Clock::time_point asked = Clock::now();
  lane_.comm.barrier(ranks_of_lane());
  recorder_.wait(position, asked);
  const Clock::time_point start = Clock::now();
  if (lane_.options.paced && inputs_.costs->reduce_buckets > 0) {
    wait_for_buckets(position);
    return recorder_.wait(position, start);
  }
  if (lane_.options.paced) {
    wait_until(start + sum_over_stages(&StageCosts::reduce));
  } else {
    lane_.gradients.reduce(lane_.comm, ranks_of_lane());
  }
  recorder_.event(EventCategory::kCompute, position, start);
}

// Of a paced reduction beside compute.
void StepEnd::wait_for_buckets(int position) {
  const std::vector<simulation::Bucket> buckets = paced_reduction_.buckets(
      *inputs_.program, *inputs_.costs, lane_.lane, lane_.comm, ranks_of_lane());
  for (const simulation::Bucket& bucket : buckets) {
    const Clock::time_point finish = inputs_.start + std::chrono::nanoseconds{bucket.finish};
    wait_until(finish);
    recorder_.event(EventCategory::kSend,
                    position,
                    inputs_.start + std::chrono::nanoseconds{bucket.start},
                    finish);
  }
}

void StepEnd::clip_norm(int position) {
  join_gradients();
  const Clock::time_point asked = Clock::now();
  const std::vector<int> all = lane_.places.all();
  outcome_.gradient_norm = lane_.gradients.clip(
      lane_.comm,
      lane_.plan.shard_optimizer ? all : lane_.places.of_replica(lane_.replica),
      lane_.options.clip_norm);
  // The one word about it that all ranks exchange, and the barrier before any of them updates.
  const bool number = std::isfinite(outcome_.loss_sum) && std::isfinite(outcome_.gradient_norm);
  at::Tensor without = at::full({1}, number ? 0.0 : 1.0, at::TensorOptions().dtype(at::kDouble));
  lane_.comm.all_reduce_sum(without, all);
  outcome_.finite = without.item<double>() == 0;
  recorder_.wait(position, asked);
}

void StepEnd::step_optimizer(int position, const std::function<void()>& optimizer_step) {
  const Clock::time_point start = Clock::now();
  if (lane_.options.paced) {
    wait_until(start + sum_over_stages(&StageCosts::optimizer));
  }
  if (optimizer_step && outcome_.finite) {
    optimizer_step();
    lane_.weights.round();
    recorder_.settle();
  }
  recorder_.event(EventCategory::kCompute, position, start);
}

// Behind the optimizer's step of all replicas. Paced runs have waited for it there.
void StepEnd::gather_parameters(int position) {
  const Clock::time_point start = Clock::now();
  lane_.weights.gather(lane_.comm, ranks_of_lane());
  recorder_.event(EventCategory::kCompute, position, start);
}

std::chrono::nanoseconds StepEnd::sum_over_stages(
    std::chrono::nanoseconds StageCosts::*member) const {
  std::chrono::nanoseconds sum{0};
  for (const StageRef& ref : lane_.plan.lanes.at(at(lane_.lane))) {
    const ModuleCosts& module = inputs_.costs->modules.at(at(ref.module));
    sum += module.stages.at(at(ref.stage)).*member;
  }
  return sum;
}

std::vector<int> StepEnd::ranks_of_lane() const {
  return lane_.places.across_replicas(lane_.lane, lane_.group.index);
}

}  // namespace entrain::engine
