#include "tests/oracle/turn_orders.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "entrain/core/base/at.h"

namespace entrain::oracle {
namespace {

Operation make(OperationKind kind, const ReplicaGraph& graph, int group, int stage) {
  return {kind, graph.key(group, stage), -1};
}

bool splits(const OrderInputs& inputs, const StageRef& ref) {
  const StageCosts& stage = inputs.costs.modules[at(ref.module)].stages[at(ref.stage)];
  return stage.trainable && (stage.launch.backward_input.count() > 0 ||
                             std::any_of(stage.units.begin(), stage.units.end(), [](auto& unit) {
                               return unit.time.backward_input.count() > 0;
                             }));
}

std::vector<Operation> stage_order(const OrderInputs& inputs,
                                   const StageRef& ref,
                                   int warm_up,
                                   std::optional<int> delay) {
  const ReplicaGraph& graph = inputs.graph;
  std::vector<Operation> order;
  const int turns_late = delay.value_or(0);
  std::vector<std::vector<Operation>> weights(at(graph.num_slots));  // [turn]
  const auto forward = [&](int slot) {
    for (int group = graph.first_group[at(ref.module)]; group < graph.end_of(ref.module); ++group) {
      if (graph.group(group).slot == slot) {
        order.push_back(make(OperationKind::kForward, graph, group, ref.stage));
      }
    }
  };
  for (int slot = 0; slot < std::min(warm_up, graph.num_slots); ++slot) {
    forward(slot);
  }
  for (int turn = 0; turn < graph.num_slots; ++turn) {
    forward(turn + warm_up);
    for (int i = graph.first_group[at(ref.module)]; i < graph.end_of(ref.module); ++i) {
      const int group = graph.backward_order[at(i)];
      if (graph.group(group).turn != turn || graph.group(group).first_backward > ref.stage) {
        continue;
      }
      if (delay) {
        order.push_back(make(OperationKind::kBackwardInput, graph, group, ref.stage));
        weights[at(turn)].push_back(make(OperationKind::kBackwardWeight, graph, group, ref.stage));
      } else {
        order.push_back(make(OperationKind::kBackward, graph, group, ref.stage));
      }
    }
    if (delay && turn >= turns_late) {
      const std::vector<Operation>& due = weights[at(turn - turns_late)];
      order.insert(order.end(), due.begin(), due.end());
    }
  }
  for (int turn = std::max(0, graph.num_slots - turns_late); turn < graph.num_slots; ++turn) {
    order.insert(order.end(), weights[at(turn)].begin(), weights[at(turn)].end());
  }
  return order;
}

// A lane of all stages: whole slots, the LLM's last stage's warm-up.
std::vector<Operation> single_lane(const OrderInputs& inputs, int warm_up) {
  const ReplicaGraph& graph = inputs.graph;
  std::vector<Operation> order;
  const auto through = [&](int group, bool forward) {
    const int stages = inputs.stages.num_stages(graph.group(group).module);
    for (int i = 0; i < stages; ++i) {
      const int stage = forward ? i : stages - 1 - i;
      if (forward || stage >= graph.group(group).first_backward) {
        order.push_back(make(
            forward ? OperationKind::kForward : OperationKind::kBackward, graph, group, stage));
      }
    }
  };
  const auto forward = [&](int slot) {
    for (const int group : opening_order(graph)) {
      if (opening_slot(graph, group) == slot) {
        through(group, true);
      }
    }
    for (int group = graph.first_llm_group(); group < graph.end_of(inputs.stages.llm); ++group) {
      if (graph.group(group).slot == slot) {
        through(group, true);
      }
    }
  };
  for (int slot = 0; slot < warm_up; ++slot) {
    forward(slot);
  }
  for (int turn = 0; turn < graph.num_slots; ++turn) {
    forward(turn + warm_up);
    for (int i = graph.first_llm_group(); i < graph.end_of(inputs.stages.llm); ++i) {
      const int group = graph.backward_order[at(i)];
      if (graph.group(group).turn == turn) {
        through(group, false);
      }
    }
    for (const int group : releasing_order(graph)) {
      if (graph.group(group).turn == turn) {
        through(group, false);
      }
    }
  }
  return order;
}

// Lists of operations that meet on lanes.
class SlowMerge {
 public:
  SlowMerge(const OrderInputs& inputs, std::vector<std::vector<Operation>> lists, bool alternate)
      : inputs_(inputs), lists_(std::move(lists)), alternate_(alternate) {}

  LaneOrders run() {
    const std::size_t num_lanes = inputs_.plan.lanes.size();
    LaneOrders orders(num_lanes);
    std::vector<std::int64_t> free(num_lanes, 0);
    std::vector<std::size_t> next(lists_.size(), 0);
    while (true) {
      // (start, -preference, -list): the least runs.
      std::optional<std::tuple<std::int64_t, int, int>> best;
      for (std::size_t list = 0; list < lists_.size(); ++list) {
        if (next[list] == lists_[list].size()) {
          continue;
        }
        const Operation& operation = lists_[list][next[list]];
        const auto lane = at(lane_of(operation));
        const std::optional<std::int64_t> ready = inputs_there(operation);
        const bool turned = alternate_ && !orders[lane].empty() && !is_forward(orders[lane].back());
        const int preference = turned                  ? (is_forward(operation) ? 1 : 0)
                               : is_forward(operation) ? 1
                               : operation.kind == OperationKind::kBackwardWeight ? 0
                                                                                  : 2;
        if (ready) {
          const std::tuple candidate(
              std::max(*ready, free[lane]), -preference, -static_cast<int>(list));
          best = best ? std::min(*best, candidate) : candidate;
        }
      }
      if (!best) {
        return orders;
      }
      const auto list = at(-std::get<2>(*best));
      const Operation& operation = lists_[list][next[list]++];
      const auto lane = at(lane_of(operation));
      free[lane] = std::get<0>(*best) + duration(operation);
      orders[lane].push_back(operation);
      finish_[{operation.kind == OperationKind::kForward,
               operation.kind == OperationKind::kBackwardWeight,
               unit_of(operation)}] = free[lane];
    }
  }

 private:
  [[nodiscard]] int lane_of(const Operation& operation) const {
    return inputs_.plan.lane_of(operation.unit.module, operation.unit.stage);
  }
  [[nodiscard]] int unit_of(const Operation& operation) const {
    return inputs_.graph.unit(inputs_.graph.number(operation.unit), operation.unit.stage);
  }
  [[nodiscard]] std::int64_t duration(const Operation& operation) const {
    const GraphUnit& unit =
        inputs_.graph.cost(inputs_.graph.group(inputs_.graph.number(operation.unit)),
                           inputs_.stages.number(operation.unit.module, operation.unit.stage));
    switch (operation.kind) {
      case OperationKind::kForward:
        return unit.forward;
      case OperationKind::kBackward:
        return unit.backward();
      case OperationKind::kBackwardInput:
        return unit.backward_input;
      default:
        return unit.weight_half();
    }
  }

  // When the last of its inputs is there; nullopt: one has not been made.
  [[nodiscard]] std::optional<std::int64_t> inputs_there(const Operation& operation) const {
    const ReplicaGraph& graph = inputs_.graph;
    const UnitKey& key = operation.unit;
    const int group = graph.number(key);
    const int unit = unit_of(operation);
    std::vector<std::pair<bool, int>> waits;  // forward or not, of a unit
    const bool last = key.stage + 1 == inputs_.stages.num_stages(key.module);
    if (operation.kind == OperationKind::kForward) {
      if (key.stage > 0) {
        waits.emplace_back(true, unit - 1);
      } else if (key.module == inputs_.stages.llm) {
        for (const int source : graph.sources_of(group)) {
          waits.emplace_back(
              true, graph.unit(source, inputs_.stages.num_stages(graph.group(source).module) - 1));
        }
      }
      for (const int before : graph.earlier_of(group)) {
        waits.emplace_back(true, graph.unit(before, key.stage));
      }
    } else if (operation.kind == OperationKind::kBackwardWeight) {
      waits.emplace_back(false, unit);
    } else {
      waits.emplace_back(true, unit);
      if (!last) {
        waits.emplace_back(false, unit + 1);
      } else if (key.module != inputs_.stages.llm) {
        for (const int taker : graph.served_by(graph.group(group))) {
          waits.emplace_back(false, graph.unit(taker, 0));
        }
      }
      for (const int after : graph.later_of(group)) {
        waits.emplace_back(false, graph.unit(after, key.stage));
      }
    }
    std::int64_t ready = 0;
    for (const auto& [forward, of] : waits) {
      const auto found = finish_.find({forward, false, of});
      if (found == finish_.end()) {
        return std::nullopt;
      }
      ready = std::max(ready, found->second);
    }
    return ready;
  }

  const OrderInputs& inputs_;
  std::vector<std::vector<Operation>> lists_;
  bool alternate_;
  std::map<std::tuple<bool, bool, int>, std::int64_t> finish_;  // forward, weight half, unit
};

}  // namespace

std::vector<std::vector<Operation>> stage_orders(const OrderInputs& inputs, const Turns& turns) {
  std::vector<std::vector<Operation>> orders;
  for (const StageGraph::Stage& stage : inputs.stages.stages) {
    const StageRef ref{stage.module, stage.stage};
    const std::size_t number = orders.size();
    const std::optional<int> delay = turns.weight_delay.empty() || !splits(inputs, ref)
                                         ? std::nullopt
                                         : std::optional(turns.weight_delay[number]);
    orders.push_back(stage_order(inputs, ref, turns.warm_up[number], delay));
  }
  return orders;
}

Turns turns_of(const OrderInputs& inputs, const std::string& schedule) {
  const StageGraph& stages = inputs.stages;
  Turns turns;
  std::vector<int> most(at(stages.llm + 1), 0);  // slots held under 1f1b
  for (const GraphGroup& group : inputs.graph.groups) {
    if (group.first_backward < stages.num_stages(group.module)) {
      most[at(group.module)] = std::max(most[at(group.module)],
                                        stages.of(group.module, group.first_backward).warm_up + 1);
    }
  }
  most.back() = *std::max_element(most.begin(), most.end());
  for (const StageGraph::Stage& stage : stages.stages) {
    const int follow = stage.warm_up;
    turns.warm_up.push_back(schedule == "gpipe"   ? inputs.graph.num_slots
                            : schedule == "zb-h2" ? 2 * follow + 1
                                                  : follow);
    if (schedule == "zb-h1") {
      turns.weight_delay.push_back(std::max(0, most[at(stage.module)] - (follow + 1)));
    } else if (schedule == "zb-h2") {
      turns.weight_delay.push_back(0);
    }
  }
  return turns;
}

LaneOrders turn_orders(const OrderInputs& inputs, const std::string& schedule) {
  const auto& lanes = inputs.plan.lanes;
  if (lanes.size() == 1 && lanes[0].size() > 1) {
    return {single_lane(inputs, schedule == "gpipe" ? inputs.graph.num_slots : 0)};
  }
  if (schedule == "dip") {
    std::vector<std::vector<Operation>> queues;
    for (const std::vector<Operation>& order : stage_orders(inputs, turns_of(inputs, "gpipe"))) {
      for (const bool forward : {true, false}) {
        std::vector<Operation>& queue = queues.emplace_back();
        std::copy_if(order.begin(), order.end(), std::back_inserter(queue), [&](auto& operation) {
          return is_forward(operation) == forward;
        });
      }
    }
    return SlowMerge(inputs, queues, true).run();
  }
  std::vector<std::vector<Operation>> orders = stage_orders(inputs, turns_of(inputs, schedule));
  const bool own =
      std::all_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.size() == 1; });
  if (!own) {
    return SlowMerge(inputs, std::move(orders), false).run();
  }
  LaneOrders result;
  for (const std::vector<StageRef>& lane : lanes) {
    result.push_back(orders[at(inputs.stages.number(lane[0].module, lane[0].stage))]);
  }
  return result;
}

}  // namespace entrain::oracle
