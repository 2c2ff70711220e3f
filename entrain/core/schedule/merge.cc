#include "entrain/core/schedule/merge.h"

#include <algorithm>
#include <chrono>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kNotRun{-1};

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

bool is_forward(const Operation& operation) {
  return operation.kind == OperationKind::kForward;
}

// Running state of the replay: when every unit's forward and backward has finished.
class Replay {
 public:
  explicit Replay(const OrderInputs& inputs)
      : inputs_(inputs),
        table_(inputs.table),
        forward_finish_(at(table_.num_units()), kNotRun),
        backward_finish_(at(table_.num_units()), kNotRun),
        encoder_groups_(at(table_.num_slots())) {
    for (const GroupEntry& entry : table_.groups()) {
      if (entry.module != table_.llm_module()) {
        const int number = table_.first_group(entry.module, entry.slot) + entry.group;
        for (const int slot : group(number).llm_slots) {
          encoder_groups_[at(slot)].push_back(number);
        }
      }
    }
  }

  // When the operation's inputs are there; kNotRun when one of them has not run.
  [[nodiscard]] nanoseconds ready(const Operation& operation) const {
    return is_forward(operation) ? forward_ready(operation.unit) : backward_ready(operation.unit);
  }

  nanoseconds finish(const Operation& operation, nanoseconds start) {
    const int number = table_.group_number(operation.unit);
    const nanoseconds result =
        start + operation_time(inputs_.costs, operation.kind, operation.unit, group(number));
    auto& finishes = is_forward(operation) ? forward_finish_ : backward_finish_;
    finishes[at(table_.unit_number(number, operation.unit.stage))] = result;
    return result;
  }

 private:
  [[nodiscard]] const Group& group(int number) const {
    const GroupEntry& entry = table_.entry(number);
    return inputs_.groups[at(entry.module)][at(entry.slot)][at(entry.group)];
  }

  [[nodiscard]] nanoseconds forward_ready(const UnitKey& unit) const {
    if (unit.stage > 0) {
      return forward_finish_[at(table_.unit_number(table_.group_number(unit), unit.stage - 1))];
    }
    nanoseconds latest{0};
    if (unit.module == table_.llm_module()) {
      for (const int number : encoder_groups_[at(unit.slot)]) {
        const int last_stage = table_.num_stages(table_.entry(number).module) - 1;
        const nanoseconds arrival = forward_finish_[at(table_.unit_number(number, last_stage))];
        if (arrival == kNotRun) {
          return kNotRun;
        }
        latest = std::max(latest, arrival);
      }
    }
    return latest;
  }

  [[nodiscard]] nanoseconds backward_ready(const UnitKey& unit) const {
    const int number = table_.group_number(unit);
    if (unit.stage + 1 < table_.num_stages(unit.module)) {
      return backward_finish_[at(table_.unit_number(number, unit.stage + 1))];
    }
    if (unit.module == table_.llm_module()) {
      return forward_finish_[at(table_.unit_number(number, unit.stage))];
    }
    nanoseconds latest{0};
    for (const int slot : group(number).llm_slots) {
      const int llm_group = table_.first_group(table_.llm_module(), slot);
      const nanoseconds arrival = backward_finish_[at(table_.unit_number(llm_group, 0))];
      if (arrival == kNotRun) {
        return kNotRun;
      }
      latest = std::max(latest, arrival);
    }
    return latest;
  }

  const OrderInputs& inputs_;
  const UnitTable& table_;
  std::vector<nanoseconds> forward_finish_;       // [unit]
  std::vector<nanoseconds> backward_finish_;      // [unit]
  std::vector<std::vector<int>> encoder_groups_;  // [LLM slot]: groups that serve it
};

}  // namespace

LaneOrders merge_stage_orders(const OrderInputs& inputs,
                              const std::vector<std::vector<Operation>>& stages) {
  const auto& lanes = inputs.plan.lanes;
  std::vector<int> lane_of(stages.size(), -1);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const StageRef& ref : lanes[lane]) {
      lane_of[at(inputs.table.stage_number(ref.module, ref.stage))] = static_cast<int>(lane);
    }
  }
  LaneOrders orders(lanes.size());
  std::vector<nanoseconds> lane_free(lanes.size(), nanoseconds{0});
  std::vector<std::size_t> next(stages.size(), 0);
  Replay replay(inputs);
  while (true) {
    int best = -1;
    nanoseconds best_start{0};
    bool left = false;
    for (int stage = static_cast<int>(stages.size()) - 1; stage >= 0; --stage) {
      if (next[at(stage)] == stages[at(stage)].size()) {
        continue;
      }
      left = true;
      const Operation& operation = stages[at(stage)][next[at(stage)]];
      const nanoseconds ready = replay.ready(operation);
      if (ready == kNotRun) {
        continue;
      }
      const nanoseconds start = std::max(ready, lane_free[at(lane_of[at(stage)])]);
      const bool tie = best >= 0 && start == best_start && !is_forward(operation) &&
                       is_forward(stages[at(best)][next[at(best)]]);
      if (best < 0 || start < best_start || tie) {
        best = stage;
        best_start = start;
      }
    }
    if (best < 0) {
      ENTRAIN_INVARIANT(!left, "stage orders wait for each other");
      return orders;
    }
    const Operation& operation = stages[at(best)][next[at(best)]++];
    const int lane = lane_of[at(best)];
    lane_free[at(lane)] = replay.finish(operation, best_start);
    orders[at(lane)].push_back(operation);
  }
}

}  // namespace entrain
