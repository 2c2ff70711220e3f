#include "entrain/core/schedule/turns.h"

#include <algorithm>

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

// Appends compute operations of one replica to a lane.
class Appender {
 public:
  Appender(const UnitTable& table, std::vector<Operation>& lane) : table_(table), lane_(lane) {}

  void forward(int group, int stage) {
    lane_.push_back({OperationKind::kForward, table_.key(group, stage), -1});
  }
  void backward(int group, int stage) {
    if (stage >= table_.entry(group).first_backward_stage) {
      lane_.push_back({OperationKind::kBackward, table_.key(group, stage), -1});
    }
  }
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
  const UnitTable& table_;
  std::vector<Operation>& lane_;
};

void append_stage(const UnitTable& table, StageRef ref, int warm_up, std::vector<Operation>& lane) {
  const int num_groups =
      table.first_group(ref.module, table.num_slots()) - table.first_group(ref.module, 0);
  lane.reserve(lane.size() + 2 * at(num_groups));
  Appender append(table, lane);
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
  if (ref.module == table.llm_module()) {
    run_turns(table.num_slots(), warm_up, forward, backward_llm);
  } else {
    run_turns(table.num_slots(), warm_up, forward, backward_released);
  }
}

void append_single_lane(const UnitTable& table, int warm_up, std::vector<Operation>& lane) {
  Appender append(table, lane);
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

}  // namespace

LaneOrders turn_order(const OrderInputs& inputs, const std::vector<int>& warm_up) {
  const UnitTable& table = inputs.table;
  const auto& lanes = inputs.plan.lanes;
  LaneOrders orders(lanes.size());
  const auto is_single = [](const std::vector<StageRef>& lane) { return lane.size() == 1; };
  if (lanes.size() == 1 && lanes[0].size() > 1) {
    append_single_lane(table, warm_up.back(), orders[0]);
  } else if (std::all_of(lanes.begin(), lanes.end(), is_single)) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const StageRef ref = lanes[lane][0];
      append_stage(
          table, ref, warm_up[at(table.stage_number(ref.module, ref.stage))], orders[lane]);
    }
  } else {
    std::vector<std::vector<Operation>> stages(at(table.num_all_stages()));
    for (int module = 0; module < table.num_modules(); ++module) {
      for (int stage = 0; stage < table.num_stages(module); ++stage) {
        const int number = table.stage_number(module, stage);
        append_stage(table, {module, stage}, warm_up[at(number)], stages[at(number)]);
      }
    }
    orders = merge_stage_orders(inputs, stages);
  }
  return orders;
}

}  // namespace entrain
