#include <algorithm>
#include <limits>

#include "entrain/core/simulator/simulator.h"
#include "entrain/core/simulator/tables.h"

namespace entrain {
namespace {

using simulation::ReplicaTables;
using simulation::StageTable;
using simulation::UnitTotals;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Longest chains through the dependencies of one replica, lanes and channels without limits.
// Forward and backward are one chain each; a split weight half hangs behind its input half.
class Chains {
 public:
  Chains(const Program& program,
         const StageTable& stages,
         const StepCosts& costs,
         const Network& network,
         int replica)
      : costs_(costs),
        network_(network),
        replica_(replica),
        part_(program.replicas[at(replica)]),
        stages_(stages),
        tables_(program, stages, costs, replica),
        units_(at(tables_.num_units())) {
    find_backwards();
  }

  std::int64_t bound() {
    forwards_before();
    backwards_before();
    backwards_after();
    forwards_after();
    std::int64_t result = 0;
    for (const std::vector<Operation>& lane : part_.lanes) {
      result = std::max(result, lane_time(lane));
    }
    return result;
  }

 private:
  struct Unit {
    bool has_gradient = false;       // a backward or an input half
    std::int64_t gradient = 0;       // its duration
    std::int64_t weight = 0;         // of a split weight half
    std::int64_t transfer = 0;       // of its output, and of the output's gradient
    std::int64_t forward_head = 0;   // before its forward can start
    std::int64_t gradient_head = 0;  // before its backward can start
    std::int64_t forward_tail = 0;   // behind its forward's finish
    std::int64_t gradient_tail = 0;  // behind its backward's finish
  };

  void find_backwards() {
    for (const std::vector<Operation>& lane : part_.lanes) {
      for (const Operation& operation : lane) {
        const bool whole = operation.kind == OperationKind::kBackward;
        const bool weight = operation.kind == OperationKind::kBackwardWeight;
        if (!whole && !weight && operation.kind != OperationKind::kBackwardInput) {
          continue;
        }
        const int index = tables_.unit_of(operation.unit);
        const UnitTotals& totals = tables_.totals(index);
        Unit& unit = units_[at(index)];
        if (weight) {
          unit.weight = totals.weight_half();
        } else {
          unit.has_gradient = true;
          unit.gradient = totals.backward_input + (whole ? totals.backward_weight : 0);
        }
      }
    }
  }

  // Calls visit(key, unit) for a module's units, stage by stage and there slot by slot, both in
  // rising or falling order: links between chunks go from lower slots to higher ones.
  template <class Visit>
  void for_each_unit(int module, bool rising, const Visit& visit) {
    const auto& slots = part_.groups[at(module)];
    const int num_stages = stages_.num_stages(module);
    const auto num_slots = static_cast<int>(slots.size());
    for (int i = 0; i < num_stages; ++i) {
      const int stage = rising ? i : num_stages - 1 - i;
      for (int s = 0; s < num_slots; ++s) {
        const int slot = rising ? s : num_slots - 1 - s;
        for (std::size_t group = 0; group < slots[at(slot)].size(); ++group) {
          const UnitKey key{module, stage, slot, static_cast<int>(group)};
          visit(key, tables_.unit_of(key));
        }
      }
    }
  }

  // Calls visit(unit) for the units that take a unit's output.
  template <class Visit>
  void for_each_taker(const UnitKey& key, int unit, const Visit& visit) {
    if (!stages_.feeds_llm(key.module, key.stage)) {
      if (key.stage + 1 < stages_.num_stages(key.module)) {
        visit(units_[at(unit + 1)]);
      }
      return;
    }
    const Group& group = group_of(part_, key);
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      visit(units_[at(tables_.llm_unit(group.served(part)))]);
    }
  }

  // Calls visit(unit) for the units on the same stage with the chunks after those of a unit.
  template <class Visit>
  void for_each_later(int unit, const Visit& visit) {
    for (const int offset : tables_.later(unit)) {
      visit(units_[at(unit + offset)]);
    }
  }

  // The link that a unit's output takes.
  [[nodiscard]] const LinkSpec& link_behind(const UnitKey& key) const {
    const int target = stages_.feeds_llm(key.module, key.stage)
                           ? stages_.llm_first_lane()
                           : stages_.lane(key.module, key.stage + 1);
    return link_between(network_, costs_, replica_, stages_.lane(key.module, key.stage), target);
  }

  // Encoders come before the LLM, so module order is the order of dependencies.
  void forwards_before() {
    for (int module = 0; module < stages_.num_modules(); ++module) {
      for_each_unit(module, true, [&](const UnitKey& key, int index) {
        Unit& unit = units_[at(index)];
        if (stages_.output_crosses(key.module, key.stage)) {
          unit.transfer =
              transfer_time(link_behind(key), tables_.totals(index).output_bytes).count();
        }
        const std::int64_t finish = unit.forward_head + tables_.totals(index).forward;
        for_each_taker(key, index, [&](Unit& taker) {
          taker.forward_head = std::max(taker.forward_head, finish + unit.transfer);
        });
        for_each_later(
            index, [&](Unit& later) { later.forward_head = std::max(later.forward_head, finish); });
      });
    }
  }

  void backwards_before() {
    for (int module = stages_.llm_module(); module >= 0; --module) {
      for_each_unit(module, false, [&](const UnitKey& key, int index) {
        Unit& unit = units_[at(index)];
        unit.gradient_head = unit.forward_head + tables_.totals(index).forward;
        for_each_taker(key, index, [&](const Unit& taker) {
          unit.gradient_head =
              std::max(unit.gradient_head, taker.gradient_head + taker.gradient + unit.transfer);
        });
        for_each_later(index, [&](const Unit& later) {
          unit.gradient_head = std::max(unit.gradient_head, later.gradient_head + later.gradient);
        });
      });
    }
  }

  void backwards_after() {
    for (int module = 0; module < stages_.num_modules(); ++module) {
      for_each_unit(module, true, [&](const UnitKey& key, int index) {
        Unit& unit = units_[at(index)];
        unit.gradient_tail = std::max(unit.gradient_tail, unit.weight);
        if (unit.has_gradient) {
          for_each_taker(key, index, [&](Unit& taker) {
            taker.gradient_tail =
                std::max(taker.gradient_tail, unit.transfer + unit.gradient + unit.gradient_tail);
          });
          for_each_later(index, [&](Unit& later) {
            later.gradient_tail = std::max(later.gradient_tail, unit.gradient + unit.gradient_tail);
          });
        }
      });
    }
  }

  void forwards_after() {
    for (int module = stages_.llm_module(); module >= 0; --module) {
      for_each_unit(module, false, [&](const UnitKey& key, int index) {
        Unit& unit = units_[at(index)];
        if (unit.has_gradient) {
          unit.forward_tail = unit.gradient + unit.gradient_tail;
        }
        // Both loops over encoders run after the LLM's, whose tails are known by now.
        const auto follow = [&](const Unit& next, std::int64_t transfer) {
          const std::int64_t forward =
              tables_.totals(static_cast<int>(&next - units_.data())).forward;
          unit.forward_tail = std::max(unit.forward_tail, transfer + forward + next.forward_tail);
        };
        for_each_taker(key, index, [&](const Unit& taker) { follow(taker, unit.transfer); });
        for_each_later(index, [&](const Unit& later) { follow(later, 0); });
      });
    }
  }

  [[nodiscard]] std::int64_t lane_time(const std::vector<Operation>& lane) const {
    constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
    std::int64_t work = 0;
    std::int64_t head = kNone;
    std::int64_t tail = kNone;
    const auto add = [&](std::int64_t duration, std::int64_t before, std::int64_t after) {
      work += duration;
      head = std::min(head, before);
      tail = std::min(tail, after);
    };
    for (const Operation& operation : lane) {
      if (operation.unit.module < 0 || operation.channel >= 0) {
        continue;
      }
      const int index = tables_.unit_of(operation.unit);
      const Unit& unit = units_[at(index)];
      switch (operation.kind) {
        case OperationKind::kForward:
          add(tables_.totals(index).forward, unit.forward_head, unit.forward_tail);
          break;
        case OperationKind::kBackwardWeight:
          add(unit.weight, unit.gradient_head + unit.gradient, 0);
          break;
        default:
          add(unit.gradient, unit.gradient_head, unit.gradient_tail);
      }
    }
    return head == kNone ? 0 : head + work + tail;
  }

  const StepCosts& costs_;
  const Network& network_;
  int replica_;
  const ReplicaProgram& part_;
  const StageTable& stages_;
  ReplicaTables tables_;
  std::vector<Unit> units_;  // [unit]
};

}  // namespace

std::chrono::nanoseconds lane_bound(const Program& program,
                                    const StepCosts& costs,
                                    const Network& network) {
  check_network(network, program);
  const StageTable stages(program);
  std::int64_t result = 0;
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    result = std::max(result, Chains(program, stages, costs, network, replica).bound());
  }
  return std::chrono::nanoseconds{result};
}

}  // namespace entrain
