#include "entrain/core/schedule/merge.h"

#include <algorithm>
#include <chrono>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/dependencies.h"

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

// Ties: what others wait for first, then what makes new work, then what nobody waits for.
int urgency(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kForward:
      return 1;
    case OperationKind::kBackwardWeight:
      return 0;
    default:
      return 2;
  }
}

// Running state of the replay: when every unit's forward and backward (its input half) has
// finished.
class Replay {
 public:
  explicit Replay(const OrderInputs& inputs)
      : inputs_(inputs),
        table_(inputs.table),
        dependencies_(inputs.groups, inputs.table),
        forward_finish_(at(table_.num_units()), kNotRun),
        backward_finish_(at(table_.num_units()), kNotRun) {}

  // When the operation's inputs are there; kNotRun when one of them has not run.
  [[nodiscard]] nanoseconds ready(const Operation& operation) const {
    const UnitKey& key = operation.unit;
    const int unit = table_.unit_number(table_.group_number(key), key.stage);
    if (is_forward(operation)) {
      return latest(dependencies_.before_forward(unit), forward_finish_, nanoseconds{0});
    }
    if (operation.kind == OperationKind::kBackwardWeight) {
      return backward_finish_[at(unit)];
    }
    return latest(dependencies_.before_backward(unit), backward_finish_, forward_finish_[at(unit)]);
  }

  nanoseconds finish(const Operation& operation, nanoseconds start) {
    const int number = table_.group_number(operation.unit);
    const nanoseconds result =
        start + operation_time(inputs_.costs, operation.kind, operation.unit, group(number));
    if (operation.kind != OperationKind::kBackwardWeight) {
      auto& finishes = is_forward(operation) ? forward_finish_ : backward_finish_;
      finishes[at(table_.unit_number(number, operation.unit.stage))] = result;
    }
    return result;
  }

 private:
  [[nodiscard]] const Group& group(int number) const {
    const GroupEntry& entry = table_.entry(number);
    return inputs_.groups[at(entry.module)][at(entry.slot)][at(entry.group)];
  }

  static nanoseconds latest(std::span<const int> units,
                            const std::vector<nanoseconds>& finishes,
                            nanoseconds result) {
    for (const int unit : units) {
      if (result == kNotRun || finishes[at(unit)] == kNotRun) {
        return kNotRun;
      }
      result = std::max(result, finishes[at(unit)]);
    }
    return result;
  }

  const OrderInputs& inputs_;
  const UnitTable& table_;
  UnitDependencies dependencies_;
  std::vector<nanoseconds> forward_finish_;   // [unit]
  std::vector<nanoseconds> backward_finish_;  // [unit], of the input half where split
};

}  // namespace

LaneOrders merge_stage_orders(const OrderInputs& inputs,
                              const std::vector<std::vector<Operation>>& lists,
                              MergeRule rule) {
  const auto& lanes = inputs.plan.lanes;
  std::vector<int> lane_of(lists.size(), -1);
  for (std::size_t list = 0; list < lists.size(); ++list) {
    if (!lists[list].empty()) {
      const UnitKey& unit = lists[list][0].unit;
      lane_of[list] = inputs.plan.lane_of(unit.module, unit.stage);
    }
  }
  LaneOrders orders(lanes.size());
  std::vector<nanoseconds> lane_free(lanes.size(), nanoseconds{0});
  std::vector<char> wants_forward(lanes.size(), 0);  // alternating: the last one was a backward
  std::vector<std::size_t> next(lists.size(), 0);
  Replay replay(inputs);
  const auto preference = [&](std::size_t lane, const Operation& operation) {
    const bool turned = rule == MergeRule::kAlternate && wants_forward[lane] != 0;
    return turned ? (is_forward(operation) ? 1 : 0) : urgency(operation);
  };
  while (true) {
    int best = -1;
    int best_preference = 0;
    nanoseconds best_start{0};
    bool left = false;
    for (int list = static_cast<int>(lists.size()) - 1; list >= 0; --list) {
      if (next[at(list)] == lists[at(list)].size()) {
        continue;
      }
      left = true;
      const Operation& operation = lists[at(list)][next[at(list)]];
      const nanoseconds ready = replay.ready(operation);
      if (ready == kNotRun) {
        continue;
      }
      const std::size_t lane = at(lane_of[at(list)]);
      const nanoseconds start = std::max(ready, lane_free[lane]);
      const int preferred = preference(lane, operation);
      if (best < 0 || start < best_start || (start == best_start && preferred > best_preference)) {
        best = list;
        best_start = start;
        best_preference = preferred;
      }
    }
    if (best < 0) {
      ENTRAIN_INVARIANT(!left, "stage orders wait for each other");
      return orders;
    }
    const Operation& operation = lists[at(best)][next[at(best)]++];
    const std::size_t lane = at(lane_of[at(best)]);
    lane_free[lane] = replay.finish(operation, best_start);
    wants_forward[lane] = is_forward(operation) ? 0 : 1;
    orders[lane].push_back(operation);
  }
}

}  // namespace entrain
