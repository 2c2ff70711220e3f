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

// Running state of the replay: when every unit's forward and backward has finished.
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
    return latest(dependencies_.before_backward(unit), backward_finish_, forward_finish_[at(unit)]);
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
  std::vector<nanoseconds> backward_finish_;  // [unit]
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
