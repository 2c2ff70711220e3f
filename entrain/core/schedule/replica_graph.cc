#include "entrain/core/schedule/replica_graph.h"

#include <algorithm>

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

GraphUnit unit_of(const StepCosts& costs, const UnitKey& key, const Group& group) {
  GraphUnit unit;
  unit.forward = operation_time(costs, OperationKind::kForward, key, group).count();
  unit.backward_input = operation_time(costs, OperationKind::kBackwardInput, key, group).count();
  unit.backward_weight =
      operation_time(costs, OperationKind::kBackward, key, group).count() - unit.backward_input;
  unit.split = operation_time(costs, OperationKind::kBackwardWeight, key, group).count() -
               unit.backward_weight;
  unit.activation_bytes = activation_bytes(costs, key, group);
  unit.output_bytes = output_bytes(costs, key, group);
  unit.recompute = recompute_bytes(costs, key, group);
  if (!group.later.empty()) {
    for (const WorkItem& item : group.items) {
      unit.key_value_bytes += key_value_bytes(costs, key.stage, item);
    }
  }
  return unit;
}

}  // namespace

StageGraph stage_graph(const Plan& plan, const LinkSpec& link) {
  StageGraph graph;
  graph.llm = static_cast<int>(plan.modules.size()) - 1;
  graph.link = link;
  graph.lanes.resize(plan.lanes.size());
  const int llm_stages = static_cast<int>(plan.modules.back().stages.size());
  for (int module = 0; module <= graph.llm; ++module) {
    graph.first_stage.push_back(static_cast<int>(graph.stages.size()));
    const int stages = static_cast<int>(plan.modules[at(module)].stages.size());
    for (int index = 0; index < stages; ++index) {
      StageGraph::Stage stage;
      stage.module = module;
      stage.stage = index;
      stage.lane = plan.lane_of(module, index);
      stage.last = index + 1 == stages;
      if (!(stage.last && module == graph.llm)) {
        const int next = stage.last ? plan.lane_of(graph.llm, 0) : plan.lane_of(module, index + 1);
        stage.crosses = next != stage.lane;
      }
      stage.warm_up = stages - index - 1 + (module == graph.llm ? 0 : llm_stages);
      graph.lanes[at(stage.lane)].push_back(static_cast<int>(graph.stages.size()));
      graph.stages.push_back(stage);
    }
  }
  graph.first_stage.push_back(static_cast<int>(graph.stages.size()));
  graph.llm_first_lane = plan.lane_of(graph.llm, 0);
  return graph;
}

void ReplicaGraph::sort_backwards() {
  backward_order.resize(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    backward_order[i] = static_cast<int>(i);
  }
  for (std::size_t module = 0; module + 1 < first_group.size(); ++module) {
    const auto before = [this](int a, int b) {
      const GraphGroup& of_a = groups[at(a)];
      const GraphGroup& of_b = groups[at(b)];
      if (of_a.turn != of_b.turn) {
        return of_a.turn < of_b.turn;
      }
      return of_a.completing != of_b.completing ? of_a.completing > of_b.completing : a < b;
    };
    const auto begin = backward_order.begin() + first_group[module];
    const auto end = backward_order.begin() + first_group[module + 1];
    if (!std::is_sorted(begin, end, before)) {
      std::sort(begin, end, before);
    }
  }
}

ReplicaGraph replica_graph(const StageGraph& stages,
                           const StepCosts& costs,
                           const std::vector<ModuleGroups>& groups,
                           const UnitTable& table) {
  ReplicaGraph graph;
  graph.num_slots = table.num_slots();
  graph.num_units = table.num_units();
  for (const StageGraph::Stage& stage : stages.stages) {
    graph.kind.push_back(stage.stage);
  }
  for (int module = 0; module <= stages.llm; ++module) {
    graph.first_group.push_back(static_cast<int>(graph.groups.size()));
    for (int slot = 0; slot < table.num_slots(); ++slot) {
      for (const Group& group : groups[at(module)][at(slot)]) {
        const GroupEntry& entry = table.entry(static_cast<int>(graph.groups.size()));
        GraphGroup flat;
        flat.module = module;
        flat.slot = slot;
        flat.group = entry.group;
        flat.first_unit = flat.first_cost = static_cast<int>(graph.costs.size());
        flat.first_backward = entry.first_backward_stage;
        flat.turn = entry.release_slot;
        flat.completing = entry.completing_slot;
        flat.served_begin = static_cast<int>(graph.served.size());
        for (std::size_t part = 0; module != stages.llm && part < group.llm_slots.size(); ++part) {
          graph.served.push_back(table.llm_group(group.served(part)));
        }
        flat.served_end = static_cast<int>(graph.served.size());
        flat.ended_begin = static_cast<int>(graph.ended.size());
        // The group in which chunks end is its slot's first; others are released there.
        if (module == stages.llm && !group.earlier.empty() && entry.release_slot == slot) {
          const GroupsBySlot& released = table.llm_released_by();
          for (int i = released.begin[at(slot)]; i < released.begin[at(slot + 1)]; ++i) {
            if (table.entry(released.groups[at(i)]).slot != slot) {
              graph.ended.push_back(released.groups[at(i)]);
            }
          }
        }
        flat.ended_end = static_cast<int>(graph.ended.size());
        for (int stage = 0; stage < stages.num_stages(module); ++stage) {
          graph.costs.push_back(unit_of(costs, {module, stage, slot, entry.group}, group));
        }
        graph.groups.push_back(flat);
      }
    }
  }
  graph.first_group.push_back(static_cast<int>(graph.groups.size()));
  graph.sort_backwards();
  return graph;
}

}  // namespace entrain
