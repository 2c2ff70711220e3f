#include "tests/oracle/slow_memory.h"

#include <algorithm>
#include <utility>

#include "entrain/core/base/at.h"

#include "tests/oracle/slow_simulator.h"

namespace entrain::oracle {
namespace {

// First position on a lane that `matches`; the list's size when there is none.
template <class Matches>
int position_of(const std::vector<Operation>& list, const Matches& matches) {
  return static_cast<int>(std::find_if(list.begin(), list.end(), matches) - list.begin());
}

// The LLM slot that holds a sample's last chunk.
int last_slot(const ReplicaProgram& replica, int sample) {
  int result = -1;
  for (std::size_t slot = 0; slot < replica.groups.back().size(); ++slot) {
    for (const Group& group : replica.groups.back()[slot]) {
      for (const WorkItem& item : group.items) {
        result = item.sample == sample ? static_cast<int>(slot) : result;
      }
    }
  }
  return result;
}

// Positions between which a chunk's keys and values by themselves, or their gradients, are held.
std::pair<int, int> key_value_span(const ReplicaProgram& replica,
                                   const std::vector<Operation>& list,
                                   const UnitKey& unit,
                                   int sample) {
  const UnitKey last{unit.module, unit.stage, last_slot(replica, sample), 0};
  const auto forward = [&](const UnitKey& key) {
    return position_of(list, [&](const Operation& operation) {
      return operation.unit == key && operation.kind == OperationKind::kForward;
    });
  };
  const auto backward = [&](const UnitKey& key) {
    return position_of(list, [&](const Operation& operation) {
      return operation.unit == key && (operation.kind == OperationKind::kBackward ||
                                       operation.kind == OperationKind::kBackwardInput);
    });
  };
  if (group_of(replica, unit).takes_backward[at(unit.stage)] != 0) {
    return {backward(last), backward(unit)};
  }
  return {forward(unit), forward(last)};
}

// One lane's list, and what is alive at each of its operations.
class SlowMemory {
 public:
  SlowMemory(const Program& program, const StepCosts& costs, int replica, int lane)
      : program_(program),
        costs_(costs),
        replica_(replica),
        lane_(lane),
        part_(program.replicas[at(replica)]),
        list_(part_.lanes[at(lane)]),
        bytes_(list_.size(), 0) {}

  std::vector<std::int64_t> run() {
    for (std::size_t module = 0; module < part_.groups.size(); ++module) {
      for (std::size_t slot = 0; slot < part_.groups[module].size(); ++slot) {
        for (std::size_t g = 0; g < part_.groups[module][slot].size(); ++g) {
          for (int stage = 0; stage < program_.num_stages[module]; ++stage) {
            const UnitKey unit{
                static_cast<int>(module), stage, static_cast<int>(slot), static_cast<int>(g)};
            if (lane_of(program_, unit) == lane_) {
              add_kept(unit, part_.groups[module][slot][g]);
            }
            if (unit.module != llm() && stage + 1 == program_.num_stages[module] &&
                lane_of(program_, {llm(), 0, 0, 0}) == lane_) {
              add_features(unit, part_.groups[module][slot][g]);
            }
          }
        }
      }
    }
    return bytes_;
  }

 private:
  [[nodiscard]] int llm() const { return program_.llm_module(); }
  void add(std::int64_t amount, int from, int to) {
    for (int i = from; i <= to && i < static_cast<int>(bytes_.size()); ++i) {
      bytes_[at(i)] += amount;
    }
  }
  template <class... Kinds>
  [[nodiscard]] int position(const UnitKey& unit, Kinds... kinds) const {
    return position_of(list_, [&](const Operation& operation) {
      return operation.unit == unit && ((operation.kind == kinds) || ...);
    });
  }

  // What a unit of this lane keeps for its backward, and what that brings back.
  void add_kept(const UnitKey& unit, const Group& group) {
    const int from = position(unit, OperationKind::kForward);
    if (group.takes_backward[at(unit.stage)] == 0) {
      add(activation_bytes(costs_, unit, group), from, from);
    } else {
      const int whole = position(unit, OperationKind::kBackward);
      const RecomputeBytes recomputed = recompute_bytes(costs_, unit, group);
      add(activation_bytes(costs_, unit, group),
          from,
          position(unit, OperationKind::kBackward, OperationKind::kBackwardWeight));
      add(recomputed.largest, whole, whole);
      add(recomputed.all,
          position(unit, OperationKind::kBackwardInput),
          position(unit, OperationKind::kBackwardWeight));
    }
    for (const WorkItem& item : group.items) {
      if (item.is_chunk()) {
        const auto [begin, end] = key_value_span(part_, list_, unit, item.sample);
        add(key_value_bytes(costs_, unit.stage, item), begin, end);
      }
    }
  }

  // An encoder's output on the LLM's first lane, until the last group that it serves is done.
  void add_features(const UnitKey& unit, const Group& group) {
    const int from = position(
        unit, lane_of(program_, unit) == lane_ ? OperationKind::kForward : OperationKind::kReceive);
    int to = from;
    for (const UnitKey& taker : backward_inputs(program_, replica_, unit)) {
      const bool backward = group_of(part_, taker).takes_backward[0] != 0;
      to = std::max(to,
                    backward
                        ? position(taker, OperationKind::kBackward, OperationKind::kBackwardInput)
                        : position(taker, OperationKind::kForward));
    }
    add(output_bytes(costs_, unit, group), from, to);
  }

  const Program& program_;
  const StepCosts& costs_;
  int replica_;
  int lane_;
  const ReplicaProgram& part_;
  const std::vector<Operation>& list_;
  std::vector<std::int64_t> bytes_;
};

}  // namespace

std::vector<std::int64_t> slow_memory(const Program& program,
                                      const StepCosts& costs,
                                      int replica,
                                      int lane) {
  return SlowMemory(program, costs, replica, lane).run();
}

}  // namespace entrain::oracle
