#include "entrain/core/assigner/evaluate.h"

#include <algorithm>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

bool is_step_wide(const Operation& operation) {
  return operation.unit.module < 0;
}

}  // namespace

StepEvaluator::StepEvaluator(const Plan& plan, const StepCosts& costs)
    : plan_(plan), costs_(costs), reduce_ns_(plan.lanes.size(), 0) {
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    std::int64_t optimizer = 0;
    for (const StageRef& ref : plan.lanes[lane]) {
      const StageCosts& stage = costs.modules[at(ref.module)].stages[at(ref.stage)];
      optimizer += stage.optimizer.count();
      reduce_ns_[lane] += plan.replicas > 1 ? stage.reduce.count() : 0;
    }
    optimizer_ns_ = std::max(optimizer_ns_, optimizer);
  }
  plan_.replicas = 1;
  assignment_.replicas.resize(1);
}

ReplicaTimes StepEvaluator::evaluate(const ReplicaAssignment& replica) {
  ++evaluations_;
  assignment_.replicas[0] = replica;
  Program program = build_program(plan_, assignment_, costs_, plan_.schedule);
  for (std::vector<Operation>& lane : program.replicas[0].lanes) {
    while (!lane.empty() && is_step_wide(lane.back())) {
      lane.pop_back();
    }
  }
  const Timeline timeline = simulate(program, costs_);
  ReplicaTimes result;
  for (std::size_t lane = 0; lane < reduce_ns_.size(); ++lane) {
    result.finish_ns.push_back(timeline.lanes[0][lane].finish.count());
    result.total_ns = std::max(result.total_ns, result.finish_ns.back() + reduce_ns_[lane]);
    result.peak_bytes = std::max(result.peak_bytes, timeline.lanes[0][lane].peak_bytes);
  }
  return result;
}

std::int64_t StepEvaluator::step_ns(const std::vector<ReplicaTimes>& replicas) const {
  std::int64_t latest = 0;
  for (const ReplicaTimes& replica : replicas) {
    latest = std::max(latest, replica.total_ns);
  }
  return latest + optimizer_ns_;
}

}  // namespace entrain
