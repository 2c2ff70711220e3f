#include "entrain/core/schedule/turns.h"

#include <algorithm>
#include <cstdint>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/merge.h"

namespace entrain {
namespace {

template <class Forward, class Backward>
void run_turns(int num_slots, int warm_up, Forward forward, Backward backward) {
  const int first = std::min(warm_up, num_slots);
  for (int slot = 0; slot < first; ++slot) {
    forward(slot);
  }
  for (int turn = 0; turn < num_slots; ++turn) {
    if (turn + first < num_slots) {
      forward(turn + first);
    }
    backward(turn);
  }
}

enum class Backward : std::uint8_t { kWhole, kHalves };

// Appends compute operations of one replica to a lane.
class Appender {
 public:
  Appender(const OrderInputs& inputs, Backward backward, std::vector<Operation>& lane)
      : stages_(inputs.stages),
        graph_(inputs.graph),
        lane_(lane),
        halves_(backward == Backward::kHalves) {}

  void forward(int group, int stage) {
    lane_.push_back({OperationKind::kForward, graph_.key(group, stage), -1});
  }
  void backward(int group, int stage) {
    if (stage < graph_.group(group).first_backward) {
      return;
    }
    const UnitKey unit = graph_.key(group, stage);
    if (halves_) {
      lane_.push_back({OperationKind::kBackwardInput, unit, -1});
      weights_.push_back({OperationKind::kBackwardWeight, unit, -1});
    } else {
      lane_.push_back({OperationKind::kBackward, unit, -1});
    }
  }

  // Everything appended since the last call was one turn's. Runs the weight halves of all turns but
  // the last `delay`.
  void end_turn(int delay) {
    ends_of_turns_.push_back(weights_.size());
    const int due = static_cast<int>(ends_of_turns_.size()) - 1 - delay;
    if (due >= 0) {
      run_weights(ends_of_turns_[at(due)]);
    }
  }
  void end_step() { run_weights(weights_.size()); }

  void forward_all_stages(int group) {
    for (int stage = 0; stage < stages_.num_stages(graph_.group(group).module); ++stage) {
      forward(group, stage);
    }
  }
  void backward_all_stages(int group) {
    for (int stage = stages_.num_stages(graph_.group(group).module) - 1; stage >= 0; --stage) {
      backward(group, stage);
    }
  }

 private:
  void run_weights(std::size_t end) {
    lane_.insert(lane_.end(),
                 weights_.begin() + static_cast<std::ptrdiff_t>(num_run_),
                 weights_.begin() + static_cast<std::ptrdiff_t>(end));
    num_run_ = end;
  }

  const StageGraph& stages_;
  const ReplicaGraph& graph_;
  std::vector<Operation>& lane_;
  bool halves_;
  std::vector<Operation> weights_;          // in the order of their input halves
  std::vector<std::size_t> ends_of_turns_;  // [turn] into weights_
  std::size_t num_run_ = 0;                 // of weights_
};

// How one stage takes its turns.
struct StageTurns {
  int warm_up = 0;
  Backward backward = Backward::kWhole;
  int weight_delay = 0;
};

void append_stage(const OrderInputs& inputs,
                  StageRef ref,
                  const StageTurns& turns,
                  std::vector<Operation>& lane) {
  const ReplicaGraph& graph = inputs.graph;
  int next = graph.first_group[at(ref.module)];  // into backward_order
  const int end = graph.end_of(ref.module);
  lane.reserve(lane.size() + (turns.backward == Backward::kHalves ? 3 : 2) * at(end - next));
  Appender append(inputs, turns.backward, lane);
  const auto forward = [&](int slot) {
    for (int g = graph.first(ref.module, slot); g < graph.first(ref.module, slot + 1); ++g) {
      append.forward(g, ref.stage);
    }
  };
  run_turns(graph.num_slots, turns.warm_up, forward, [&](int turn) {
    for (; next < end && graph.group(graph.backward_order[at(next)]).turn == turn; ++next) {
      append.backward(graph.backward_order[at(next)], ref.stage);
    }
    append.end_turn(turns.weight_delay);
  });
  append.end_step();
}

void append_single_lane(const OrderInputs& inputs, int warm_up, std::vector<Operation>& lane) {
  const ReplicaGraph& graph = inputs.graph;
  const int llm = inputs.stages.llm;
  Appender append(inputs, Backward::kWhole, lane);
  const std::vector<int> opening = opening_order(graph);
  const std::vector<int> releasing = releasing_order(graph);
  std::size_t opened = 0;
  std::size_t released = 0;
  int next = graph.first_llm_group();  // into backward_order
  const auto forward = [&](int slot) {
    for (; opened < opening.size() && opening_slot(graph, opening[opened]) == slot; ++opened) {
      append.forward_all_stages(opening[opened]);
    }
    for (int g = graph.first(llm, slot); g < graph.first(llm, slot + 1); ++g) {
      append.forward_all_stages(g);
    }
  };
  const auto backward = [&](int slot) {
    for (; next < graph.end_of(llm) && graph.group(graph.backward_order[at(next)]).turn == slot;
         ++next) {
      append.backward_all_stages(graph.backward_order[at(next)]);
    }
    for (; released < releasing.size() && graph.group(releasing[released]).turn == slot;
         ++released) {
      append.backward_all_stages(releasing[released]);
    }
  };
  run_turns(graph.num_slots, warm_up, forward, backward);
}

StageTurns stage_turns(const OrderInputs& inputs,
                       StageRef ref,
                       const std::vector<int>& warm_up,
                       const std::vector<int>& weight_delay) {
  const std::size_t number = at(inputs.stages.number(ref.module, ref.stage));
  StageTurns turns;
  turns.warm_up = warm_up[number];
  if (!weight_delay.empty() &&
      has_both_halves(inputs.costs.modules[at(ref.module)].stages[at(ref.stage)])) {
    turns.backward = Backward::kHalves;
    turns.weight_delay = weight_delay[number];
  }
  return turns;
}

}  // namespace

std::vector<int> stages_that_follow(const StageGraph& stages) {
  std::vector<int> result;
  for (const StageGraph::Stage& stage : stages.stages) {
    result.push_back(stage.warm_up);
  }
  return result;
}

bool has_both_halves(const StageCosts& stage) {
  const auto has_input = [](const UnitCost& unit) { return unit.time.backward_input.count() > 0; };
  return stage.trainable && (stage.launch.backward_input.count() > 0 ||
                             std::any_of(stage.units.begin(), stage.units.end(), has_input));
}

std::vector<std::vector<Operation>> stage_turn_orders(const OrderInputs& inputs,
                                                      const std::vector<int>& warm_up,
                                                      const std::vector<int>& weight_delay) {
  std::vector<std::vector<Operation>> orders;
  for (const StageGraph::Stage& stage : inputs.stages.stages) {
    const StageRef ref{stage.module, stage.stage};
    append_stage(
        inputs, ref, stage_turns(inputs, ref, warm_up, weight_delay), orders.emplace_back());
  }
  return orders;
}

LaneOrders turn_order(const OrderInputs& inputs,
                      const std::vector<int>& warm_up,
                      const std::vector<int>& weight_delay) {
  const auto& lanes = inputs.plan.lanes;
  const auto is_single = [](const std::vector<StageRef>& lane) { return lane.size() == 1; };
  if (lanes.size() == 1 && lanes[0].size() > 1) {
    LaneOrders orders(1);
    append_single_lane(inputs, warm_up.back(), orders[0]);
    return orders;
  }
  if (!std::all_of(lanes.begin(), lanes.end(), is_single)) {
    return merge_stage_orders(inputs, stage_turn_orders(inputs, warm_up, weight_delay));
  }
  LaneOrders orders(lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const StageRef ref = lanes[lane][0];
    append_stage(inputs, ref, stage_turns(inputs, ref, warm_up, weight_delay), orders[lane]);
  }
  return orders;
}

}  // namespace entrain
