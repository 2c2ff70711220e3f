#include <algorithm>

#include "entrain/core/graph/lane_clock.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

// Lets a replica's clock run an operation of a lane; false where that changes nothing.
bool apply(ReplicaClock& clock,
           const StageGraph& stages,
           const ReplicaGraph& graph,
           const ReplicaProgram& part,
           const Operation& operation) {
  const UnitKey& key = operation.unit;
  if (key.module < 0) {
    return false;
  }
  const int group = graph.checked_number(stages, key);
  const UnitAt unit = clock.unit(stages.number(key.module, key.stage), group);
  switch (operation.kind) {
    case OperationKind::kForward:
      clock.forward(unit, 0);
      return true;
    case OperationKind::kBackward:
    case OperationKind::kBackwardInput:
      clock.backward(unit, operation.kind == OperationKind::kBackwardInput, 0);
      return true;
    case OperationKind::kBackwardWeight:
      clock.backward_weight(unit, 0);
      return true;
    case OperationKind::kReceive:
      clock.receive(part.channels[static_cast<std::size_t>(operation.channel)], group);
      return true;
    default:
      return false;
  }
}

// Compute events of every lane: [replica][lane][position]; nullptr if there is none.
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
                                   const StageGraph& stages,
                                   const ReplicaGraph& graph,
                                   int lane,
                                   const std::vector<const TimelineEvent*>& events) {
  const std::vector<Operation>& list = part.lanes[static_cast<std::size_t>(lane)];
  ReplicaClock replica(stages, graph);
  const LaneClock& clock = replica.lane(lane);
  std::vector<MemoryStep> steps;
  const auto add = [&](std::chrono::nanoseconds time, std::int64_t bytes) {
    if (steps.empty() ? bytes != 0 : steps.back().bytes != bytes) {
      steps.push_back({time, bytes});
    }
  };
  std::chrono::nanoseconds now{0};
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!apply(replica, stages, graph, part, list[i])) {
      continue;
    }
    if (list[i].kind == OperationKind::kReceive) {
      add(now, clock.during);
      continue;
    }
    if (events[i] == nullptr) {
      return {};
    }
    add(events[i]->start, clock.during);
    now = events[i]->finish;
    add(now, clock.held);
  }
  return steps;
}

}  // namespace

std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepGraph& graph,
                                           int replica,
                                           int lane) {
  const ReplicaGraph& of = graph.replicas[static_cast<std::size_t>(replica)];
  const ReplicaProgram& part = program.replicas[static_cast<std::size_t>(replica)];
  ReplicaClock replica_clock(graph.stages, of);
  const LaneClock& clock = replica_clock.lane(lane);
  std::vector<std::int64_t> result;
  for (const Operation& operation : part.lanes[static_cast<std::size_t>(lane)]) {
    const bool changes = apply(replica_clock, graph.stages, of, part, operation);
    result.push_back(changes ? clock.during : clock.held);
  }
  return result;
}

std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepCosts& costs,
                                           int replica,
                                           int lane) {
  return memory_over_time(program, step_graph(program, costs), replica, lane);
}

std::vector<std::vector<std::vector<MemoryStep>>> memory_timeline(const Program& program,
                                                                  const StepCosts& costs,
                                                                  const Timeline& timeline) {
  const StepGraph graph = step_graph(program, costs);
  const ComputeEvents events = compute_events(program, timeline);
  std::vector<std::vector<std::vector<MemoryStep>>> result;
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    const ReplicaProgram& part = program.replicas[replica];
    auto& lanes = result.emplace_back();
    for (std::size_t lane = 0; lane < part.lanes.size(); ++lane) {
      lanes.push_back(lane_steps(part,
                                 graph.stages,
                                 graph.replicas[replica],
                                 static_cast<int>(lane),
                                 events[replica][lane]));
    }
  }
  return result;
}

}  // namespace entrain
