#include "entrain/core/schedule/turns.h"

#include <algorithm>
#include <cstdint>

#include "entrain/core/schedule/merge.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

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
  Appender(const UnitTable& table, Backward backward, std::vector<Operation>& lane)
      : table_(table), lane_(lane), halves_(backward == Backward::kHalves) {}

  void forward(int group, int stage) {
    lane_.push_back({OperationKind::kForward, table_.key(group, stage), -1});
  }
  void backward(int group, int stage) {
    if (stage < table_.entry(group).first_backward_stage) {
      return;
    }
    const UnitKey unit = table_.key(group, stage);
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
    for (int stage = 0; stage < table_.num_stages(table_.entry(group).module); ++stage) {
      forward(group, stage);
    }
  }
  void backward_all_stages(int group) {
    for (int stage = table_.num_stages(table_.entry(group).module) - 1; stage >= 0; --stage) {
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

  const UnitTable& table_;
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

void append_stage(const UnitTable& table,
                  StageRef ref,
                  const StageTurns& turns,
                  std::vector<Operation>& lane) {
  const int num_groups =
      table.first_group(ref.module, table.num_slots()) - table.first_group(ref.module, 0);
  lane.reserve(lane.size() + (turns.backward == Backward::kHalves ? 3 : 2) * at(num_groups));
  Appender append(table, turns.backward, lane);
  const auto forward = [&](int slot) {
    const int end = table.first_group(ref.module, slot + 1);
    for (int group = table.first_group(ref.module, slot); group < end; ++group) {
      append.forward(group, ref.stage);
    }
  };
  const auto backward_llm = [&](int slot) {
    const GroupsBySlot& released = table.llm_released_by();
    for (int i = released.begin[at(slot)]; i < released.begin[at(slot + 1)]; ++i) {
      append.backward(released.groups[at(i)], ref.stage);
    }
  };
  const auto backward_released = [&](int slot) {
    const GroupsBySlot& released = table.released_by();
    for (int i = released.begin[at(slot)]; i < released.begin[at(slot + 1)]; ++i) {
      const int group = released.groups[at(i)];
      if (table.entry(group).module == ref.module) {
        append.backward(group, ref.stage);
      }
    }
  };
  run_turns(table.num_slots(), turns.warm_up, forward, [&](int turn) {
    if (ref.module == table.llm_module()) {
      backward_llm(turn);
    } else {
      backward_released(turn);
    }
    append.end_turn(turns.weight_delay);
  });
  append.end_step();
}

void append_single_lane(const UnitTable& table, int warm_up, std::vector<Operation>& lane) {
  Appender append(table, Backward::kWhole, lane);
  const int llm = table.llm_module();
  const auto forward = [&](int slot) {
    const GroupsBySlot& opened = table.opened_by();
    for (int i = opened.begin[at(slot)]; i < opened.begin[at(slot + 1)]; ++i) {
      append.forward_all_stages(opened.groups[at(i)]);
    }
    for (int g = table.first_group(llm, slot); g < table.first_group(llm, slot + 1); ++g) {
      append.forward_all_stages(g);
    }
  };
  const auto backward = [&](int slot) {
    for (const GroupsBySlot* released : {&table.llm_released_by(), &table.released_by()}) {
      for (int i = released->begin[at(slot)]; i < released->begin[at(slot + 1)]; ++i) {
        append.backward_all_stages(released->groups[at(i)]);
      }
    }
  };
  run_turns(table.num_slots(), warm_up, forward, backward);
}

StageTurns stage_turns(const OrderInputs& inputs,
                       StageRef ref,
                       const std::vector<int>& warm_up,
                       const std::vector<int>& weight_delay) {
  const std::size_t number = at(inputs.table.stage_number(ref.module, ref.stage));
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

std::vector<int> stages_that_follow(const UnitTable& table) {
  const int llm = table.llm_module();
  std::vector<int> result;
  for (int module = 0; module <= llm; ++module) {
    const int after_module = module == llm ? 0 : table.num_stages(llm);
    for (int stage = 0; stage < table.num_stages(module); ++stage) {
      result.push_back(table.num_stages(module) + after_module - stage - 1);
    }
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
  const UnitTable& table = inputs.table;
  std::vector<std::vector<Operation>> stages(at(table.num_all_stages()));
  for (int module = 0; module < table.num_modules(); ++module) {
    for (int stage = 0; stage < table.num_stages(module); ++stage) {
      const StageRef ref{module, stage};
      append_stage(table,
                   ref,
                   stage_turns(inputs, ref, warm_up, weight_delay),
                   stages[at(table.stage_number(module, stage))]);
    }
  }
  return stages;
}

LaneOrders turn_order(const OrderInputs& inputs,
                      const std::vector<int>& warm_up,
                      const std::vector<int>& weight_delay) {
  const auto& lanes = inputs.plan.lanes;
  const auto is_single = [](const std::vector<StageRef>& lane) { return lane.size() == 1; };
  if (lanes.size() == 1 && lanes[0].size() > 1) {
    LaneOrders orders(1);
    append_single_lane(inputs.table, warm_up.back(), orders[0]);
    return orders;
  }
  if (!std::all_of(lanes.begin(), lanes.end(), is_single)) {
    return merge_stage_orders(inputs, stage_turn_orders(inputs, warm_up, weight_delay));
  }
  LaneOrders orders(lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const StageRef ref = lanes[lane][0];
    append_stage(inputs.table, ref, stage_turns(inputs, ref, warm_up, weight_delay), orders[lane]);
  }
  return orders;
}

}  // namespace entrain
