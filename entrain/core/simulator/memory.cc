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
  hold(totals.activation_bytes + (leaves_features ? totals.output_bytes : 0));
  if (!totals.takes_backward) {
    held_ -= totals.activation_bytes;
    release_features(key);
  }
}

void LaneMemory::backward(const UnitKey& key, int unit) {
  during_ = held_;
  held_ -= tables_->totals(unit).activation_bytes;
  release_features(key);
}

void LaneMemory::backward_input(const UnitKey& key) {
  during_ = held_;
  release_features(key);
}

void LaneMemory::backward_weight(int unit) {
  during_ = held_;
  held_ -= tables_->totals(unit).activation_bytes;
}

void LaneMemory::receive(const Channel& channel, int unit) {
  const bool features =
      takes_features_ && !channel.gradient &&
      tables_->stages().feeds_llm(channel.producer.module, channel.producer.stage);
  hold(features ? tables_->totals(unit).output_bytes : 0);
}

// Frees the encoder outputs whose last LLM slot has just been done with.
void LaneMemory::release_features(const UnitKey& key) {
  if (key.stage != 0 || key.module != tables_->stages().llm_module()) {
    return;
  }
  for (int i = tables_->first_serving(key.slot); i < tables_->first_serving(key.slot + 1); ++i) {
    const int unit = tables_->serving(i).unit;
    if (--takers_left_[static_cast<std::size_t>(unit)] == 0) {
      held_ -= tables_->totals(unit).output_bytes;
    }
  }
}

}  // namespace simulation

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
    const bool has_unit = operation.unit.module >= 0;
    const int unit = has_unit ? tables.unit_of(operation.unit) : -1;
    bool changes = true;
    switch (operation.kind) {
      case OperationKind::kForward:
        memory.forward(operation.unit, unit);
        break;
      case OperationKind::kBackward:
        memory.backward(operation.unit, unit);
        break;
      case OperationKind::kBackwardInput:
        memory.backward_input(operation.unit);
        break;
      case OperationKind::kBackwardWeight:
        memory.backward_weight(unit);
        break;
      case OperationKind::kReceive:
        memory.receive(part.channels[static_cast<std::size_t>(operation.channel)], unit);
        break;
      default:
        changes = false;
    }
    result.push_back(changes ? memory.during() : memory.held());
  }
  return result;
}

}  // namespace entrain
