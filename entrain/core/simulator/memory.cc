#include "entrain/core/simulator/memory.h"

#include <algorithm>

#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace simulation {

LaneMemory::LaneMemory(const ReplicaTables& tables, int lane)
    : tables_(&tables), takes_features_(lane == tables.stages().llm_first_lane()) {
  if (takes_features_) {
    takers_left_ = tables.num_takers();
  }
}

void LaneMemory::hold(std::int64_t bytes) {
  held_ += bytes;
  during_ = held_;
  peak_ = std::max(peak_, held_);
}

void LaneMemory::forward(const UnitKey& key, int unit) {
  const UnitTotals& totals = tables_->totals(unit);
  const bool leaves_features =
      takes_features_ && tables_->stages().feeds_llm(key.module, key.stage);
  hold(totals.activation_bytes + (leaves_features ? totals.output_bytes : 0) +
       (totals.takes_backward ? 0 : totals.key_value_bytes));
  if (!totals.takes_backward) {
    held_ -= totals.activation_bytes;
    release_features(key, unit);
  }
  release_keys_and_values(unit);
}

void LaneMemory::backward(const UnitKey& key, int unit) {
  const UnitTotals& totals = tables_->totals(unit);
  start_backward(unit, totals.recompute.largest);
  finish_input(key, unit);
  held_ -= totals.activation_bytes + totals.recompute.largest;
}

void LaneMemory::backward_input(const UnitKey& key, int unit) {
  start_backward(unit, tables_->totals(unit).recompute.all);
  finish_input(key, unit);
}

void LaneMemory::backward_weight(int unit) {
  const UnitTotals& totals = tables_->totals(unit);
  during_ = held_;
  held_ -= totals.activation_bytes + totals.recompute.all;
}

void LaneMemory::receive(const Channel& channel, int unit) {
  const bool features =
      takes_features_ && !channel.gradient &&
      tables_->stages().feeds_llm(channel.producer.module, channel.producer.stage);
  hold(features ? tables_->totals(unit).output_bytes : 0);
}

// Frees the encoder outputs whose last LLM group has just been done with.
void LaneMemory::release_features(const UnitKey& key, int unit) {
  if (key.stage != 0 || key.module != tables_->stages().llm_module()) {
    return;
  }
  for (const Serving& serving : tables_->serving(unit)) {
    if (--takers_left_[static_cast<std::size_t>(serving.unit)] == 0) {
      held_ -= tables_->totals(serving.unit).output_bytes;
    }
  }
}

// Those that stand apart from activations: of units that take no part in backward.
void LaneMemory::release_keys_and_values(int unit) {
  for (const int offset : tables_->ended(unit)) {
    const UnitTotals& ended = tables_->totals(unit + offset);
    held_ -= ended.takes_backward ? 0 : ended.key_value_bytes;
  }
}

void LaneMemory::start_backward(int unit, std::int64_t recomputed) {
  std::int64_t bytes = recomputed;
  for (const int offset : tables_->ended(unit)) {
    const UnitTotals& ended = tables_->totals(unit + offset);
    bytes += ended.takes_backward ? ended.key_value_bytes : 0;
  }
  hold(bytes);
}

void LaneMemory::finish_input(const UnitKey& key, int unit) {
  held_ -= tables_->totals(unit).key_value_bytes;  // the gradients of its own
  release_features(key, unit);
}

}  // namespace simulation

namespace {

// Lets a lane's memory run its operation; false where that changes nothing.
bool apply(simulation::LaneMemory& memory,
           const simulation::ReplicaTables& tables,
           const ReplicaProgram& part,
           const Operation& operation) {
  const bool has_unit = operation.unit.module >= 0;
  const int unit = has_unit ? tables.unit_of(operation.unit) : -1;
  switch (operation.kind) {
    case OperationKind::kForward:
      memory.forward(operation.unit, unit);
      return true;
    case OperationKind::kBackward:
      memory.backward(operation.unit, unit);
      return true;
    case OperationKind::kBackwardInput:
      memory.backward_input(operation.unit, unit);
      return true;
    case OperationKind::kBackwardWeight:
      memory.backward_weight(unit);
      return true;
    case OperationKind::kReceive:
      memory.receive(part.channels[static_cast<std::size_t>(operation.channel)], unit);
      return true;
    default:
      return false;
  }
}

// Compute events of every lane: [replica][lane][position]; nullptr where there is none.
using ComputeEvents = std::vector<std::vector<std::vector<const TimelineEvent*>>>;

ComputeEvents compute_events(const Program& program, const Timeline& timeline) {
  ComputeEvents result;
  for (const ReplicaProgram& replica : program.replicas) {
    auto& lanes = result.emplace_back();
    for (const std::vector<Operation>& list : replica.lanes) {
      lanes.emplace_back(list.size(), nullptr);
    }
  }
  for (const TimelineEvent& event : timeline.events) {
    if (event.category == EventCategory::kCompute) {
      result[static_cast<std::size_t>(event.replica)][static_cast<std::size_t>(event.lane)]
            [static_cast<std::size_t>(event.operation)] = &event;
    }
  }
  return result;
}

std::vector<MemoryStep> lane_steps(const ReplicaProgram& part,
                                   const simulation::ReplicaTables& tables,
                                   int lane,
                                   const std::vector<const TimelineEvent*>& events) {
  const std::vector<Operation>& list = part.lanes[static_cast<std::size_t>(lane)];
  simulation::LaneMemory memory(tables, lane);
  std::vector<MemoryStep> steps;
  const auto add = [&](std::chrono::nanoseconds time, std::int64_t bytes) {
    if (steps.empty() ? bytes != 0 : steps.back().bytes != bytes) {
      steps.push_back({time, bytes});
    }
  };
  std::chrono::nanoseconds now{0};
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!apply(memory, tables, part, list[i])) {
      continue;
    }
    if (list[i].kind == OperationKind::kReceive) {
      add(now, memory.during());
      continue;
    }
    if (events[i] == nullptr) {
      return {};
    }
    add(events[i]->start, memory.during());
    now = events[i]->finish;
    add(now, memory.held());
  }
  return steps;
}

}  // namespace

std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepCosts& costs,
                                           int replica,
                                           int lane) {
  const simulation::StageTable stages(program);
  const simulation::ReplicaTables tables(program, stages, costs, replica);
  const ReplicaProgram& part = program.replicas[static_cast<std::size_t>(replica)];
  simulation::LaneMemory memory(tables, lane);
  std::vector<std::int64_t> result;
  for (const Operation& operation : part.lanes[static_cast<std::size_t>(lane)]) {
    const bool changes = apply(memory, tables, part, operation);
    result.push_back(changes ? memory.during() : memory.held());
  }
  return result;
}

std::vector<std::vector<std::vector<MemoryStep>>> memory_timeline(const Program& program,
                                                                  const StepCosts& costs,
                                                                  const Timeline& timeline) {
  const simulation::StageTable stages(program);
  const ComputeEvents events = compute_events(program, timeline);
  std::vector<std::vector<std::vector<MemoryStep>>> result;
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    const ReplicaProgram& part = program.replicas[replica];
    const simulation::ReplicaTables tables(program, stages, costs, static_cast<int>(replica));
    auto& lanes = result.emplace_back();
    for (std::size_t lane = 0; lane < part.lanes.size(); ++lane) {
      lanes.push_back(lane_steps(part, tables, static_cast<int>(lane), events[replica][lane]));
    }
  }
  return result;
}

}  // namespace entrain
