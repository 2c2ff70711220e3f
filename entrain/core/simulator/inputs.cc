#include "entrain/core/simulator/inputs.h"

#include <algorithm>

#include "entrain/core/base/at.h"

namespace entrain::simulation {
namespace {

// Looks at an input once; false while it is unknown.
bool take_input(ReplayLane& lane, const std::int64_t& time) {
  if (time == kUnknown) {
    lane.waiting_for = &time;
    return false;
  }
  lane.inputs_ready = std::max(lane.inputs_ready, time);
  ++lane.inputs_seen;
  return true;
}

}  // namespace

bool Inputs::forward_ready(ReplayLane& lane,
                           const ReplayReplica& replica,
                           const UnitRef& ref) const {
  const ReplicaGraph& graph = *replica.graph;
  const StageGraph::Stage& of = place(ref);
  // Chunks follow each other on one lane: what comes later on it can never come first.
  for (const int before : graph.earlier_of(ref.group)) {
    if (replica.times[at(graph.unit(before, of.stage))].forward_finish == kUnknown) {
      return false;
    }
  }
  if (of.stage > 0) {
    const UnitTimes& before = replica.times[at(ref.unit - 1)];
    return take_input(
        lane,
        stages_.stages[at(ref.stage - 1)].crosses ? before.output_arrival : before.forward_finish);
  }
  if (of.module == stages_.llm) {
    const auto sources = graph.sources_of(ref.group);
    for (std::size_t i = at(lane.inputs_seen); i < sources.size(); ++i) {
      const GraphGroup& source = graph.group(sources[i]);
      const int last = stages_.num_stages(source.module) - 1;
      const UnitTimes& features = replica.times[at(source.first_unit + last)];
      if (!take_input(lane,
                      stages_.of(source.module, last).crosses ? features.output_arrival
                                                              : features.forward_finish)) {
        return false;
      }
    }
  }
  return true;
}

bool Inputs::gradient_ready(ReplayLane& lane,
                            const ReplayReplica& replica,
                            const UnitRef& ref) const {
  if (replica.times[at(ref.unit)].forward_finish == kUnknown) {
    return false;
  }
  const ReplicaGraph& graph = *replica.graph;
  const StageGraph::Stage& of = place(ref);
  for (const int after : graph.later_of(ref.group)) {
    if (replica.times[at(graph.unit(after, of.stage))].gradient_finish == kUnknown) {
      return false;
    }
  }
  if (of.last && of.module == stages_.llm) {
    return true;
  }
  if (of.crosses) {
    return take_input(lane, replica.times[at(ref.unit)].gradient_arrival);
  }
  if (!of.last) {
    return take_input(lane, replica.times[at(ref.unit + 1)].gradient_finish);
  }
  // The LLM's first stage is on this lane: all its backwards must have run.
  return takers_done(replica, ref);
}

bool Inputs::produced(const ReplayReplica& replica, bool gradient, const UnitRef& ref) const {
  if (!gradient) {
    return replica.times[at(ref.unit)].forward_finish != kUnknown;
  }
  if (!place(ref).last) {
    return replica.times[at(ref.unit + 1)].gradient_finish != kUnknown;
  }
  return takers_done(replica, ref);
}

// Whether all first-stage LLM units that take an encoder unit's output have made its gradient.
bool Inputs::takers_done(const ReplayReplica& replica, const UnitRef& ref) const {
  const ReplicaGraph& graph = *replica.graph;
  for (const int taker : graph.served_by(graph.group(ref.group))) {
    if (replica.times[at(graph.unit(taker, 0))].gradient_finish == kUnknown) {
      return false;
    }
  }
  return true;
}

}  // namespace entrain::simulation
