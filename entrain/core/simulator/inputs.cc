#include "entrain/core/simulator/inputs.h"

#include <algorithm>

namespace entrain::simulation {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Looks at an input once; false while it is unknown.
bool take_input(LaneState& lane, const std::int64_t& time) {
  if (time == kUnknown) {
    lane.waiting_for = &time;
    return false;
  }
  lane.inputs_ready = std::max(lane.inputs_ready, time);
  ++lane.inputs_seen;
  return true;
}

}  // namespace

bool Inputs::forward_ready(LaneState& lane,
                           const ReplicaState& replica,
                           const UnitKey& key,
                           int unit) const {
  // Chunks follow each other on one lane: what stands behind can never come first.
  for (const int offset : replica.tables.earlier(unit)) {
    if (replica.times[at(unit + offset)].forward_finish == kUnknown) {
      return false;
    }
  }
  if (key.stage > 0) {
    const UnitTimes& before = replica.times[at(unit - 1)];
    return take_input(lane,
                      stages_.output_crosses(key.module, key.stage - 1) ? before.output_arrival
                                                                        : before.forward_finish);
  }
  if (key.module == stages_.llm_module()) {
    const auto sources = replica.tables.serving(unit);
    for (std::size_t i = at(lane.inputs_seen); i < sources.size(); ++i) {
      const Serving& serving = sources[i];
      const UnitTimes& features = replica.times[at(serving.unit)];
      if (!take_input(lane, serving.crosses ? features.output_arrival : features.forward_finish)) {
        return false;
      }
    }
  }
  return true;
}

bool Inputs::gradient_ready(LaneState& lane,
                            const ReplicaState& replica,
                            const UnitKey& key,
                            int unit) const {
  if (replica.times[at(unit)].forward_finish == kUnknown) {
    return false;
  }
  for (const int offset : replica.tables.later(unit)) {
    if (replica.times[at(unit + offset)].gradient_finish == kUnknown) {
      return false;
    }
  }
  const bool last = key.stage + 1 == stages_.num_stages(key.module);
  if (last && key.module == stages_.llm_module()) {
    return true;
  }
  if (stages_.output_crosses(key.module, key.stage)) {
    return take_input(lane, replica.times[at(unit)].gradient_arrival);
  }
  if (!last) {
    return take_input(lane, replica.times[at(unit + 1)].gradient_finish);
  }
  // The LLM's first stage stands on this lane: all its backwards have to be behind us.
  return takers_done(lane, replica, key);
}

bool Inputs::produced(const LaneState& lane,
                      const ReplicaState& replica,
                      const Channel& channel,
                      const UnitKey& key,
                      int unit) const {
  if (!channel.gradient) {
    return replica.times[at(unit)].forward_finish != kUnknown;
  }
  if (key.stage + 1 < stages_.num_stages(key.module)) {
    return replica.times[at(unit + 1)].gradient_finish != kUnknown;
  }
  return takers_done(lane, replica, key);
}

// Whether all first-stage LLM units that take an encoder unit's output have made its gradient.
bool Inputs::takers_done(const LaneState& lane,
                         const ReplicaState& replica,
                         const UnitKey& key) const {
  const Group& group =
      program_.replicas[at(lane.replica)].groups[at(key.module)][at(key.slot)][at(key.group)];
  for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
    const int unit = replica.tables.llm_unit(group.served(part));
    if (replica.times[at(unit)].gradient_finish == kUnknown) {
      return false;
    }
  }
  return true;
}

}  // namespace entrain::simulation
