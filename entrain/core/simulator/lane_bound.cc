#include <algorithm>
#include <limits>

#include "entrain/core/base/at.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

// Longest chains through the dependencies of one replica, lanes and channels without limits.
// Forward and backward are one chain each; a split weight half follows its input half.
class Chains {
 public:
  Chains(const Program& program,
         const StepGraph& graph,
         const StepCosts& costs,
         const Network& network,
         int replica)
      : costs_(costs),
        network_(network),
        replica_(replica),
        part_(program.replicas[at(replica)]),
        stages_(graph.stages),
        graph_(graph.replicas[at(replica)]),
        units_(at(graph_.num_units)) {
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
    std::int64_t forward_tail = 0;   // after its forward's finish
    std::int64_t gradient_tail = 0;  // after its backward's finish
  };

  // A unit by its group's number and stage.
  struct Place {
    int group = 0;
    int stage = 0;  // number
    int unit = 0;
  };
  [[nodiscard]] Place place_of(const UnitKey& key) const {
    const int group = graph_.checked_number(stages_, key);
    return {group, stages_.number(key.module, key.stage), graph_.unit(group, key.stage)};
  }
  [[nodiscard]] const GraphUnit& cost(const Place& of) const {
    return graph_.cost(graph_.group(of.group), of.stage);
  }

  void find_backwards() {
    for (const std::vector<Operation>& lane : part_.lanes) {
      for (const Operation& operation : lane) {
        const bool whole = operation.kind == OperationKind::kBackward;
        const bool weight = operation.kind == OperationKind::kBackwardWeight;
        if (!whole && !weight && operation.kind != OperationKind::kBackwardInput) {
          continue;
        }
        const Place place = place_of(operation.unit);
        Unit& unit = units_[at(place.unit)];
        if (weight) {
          unit.weight = cost(place).weight_half();
        } else {
          unit.has_gradient = true;
          unit.gradient = whole ? cost(place).backward() : cost(place).backward_input;
        }
      }
    }
  }

  // Calls visit(place) for a module's units, stage by stage and there group by group, both in
  // rising or falling order: links between chunks go from lower groups to higher ones.
  template <class Visit>
  void for_each_unit(int module, bool rising, const Visit& visit) {
    const int first = graph_.first_group[at(module)];
    const int end = graph_.end_of(module);
    const int num_stages = stages_.num_stages(module);
    for (int i = 0; i < num_stages; ++i) {
      const int stage = rising ? i : num_stages - 1 - i;
      for (int g = first; g < end; ++g) {
        const int group = rising ? g : end - 1 - (g - first);
        visit(Place{group, stages_.number(module, stage), graph_.unit(group, stage)});
      }
    }
  }

  // Calls visit(unit, its place) for the units that take a unit's output.
  template <class Visit>
  void for_each_taker(const Place& place, const Visit& visit) {
    const StageGraph::Stage& of = stages_.stages[at(place.stage)];
    if (!of.last) {
      visit(units_[at(place.unit + 1)], Place{place.group, place.stage + 1, place.unit + 1});
    } else if (of.module != stages_.llm) {
      for (const int taker : graph_.served_by(graph_.group(place.group))) {
        const Place taking{taker, stages_.number(stages_.llm, 0), graph_.unit(taker, 0)};
        visit(units_[at(taking.unit)], taking);
      }
    }
  }

  // Likewise for the units on the same stage with the chunks after those of a unit.
  template <class Visit>
  void for_each_later(const Place& place, const Visit& visit) {
    for (const int later : graph_.later_of(place.group)) {
      const int unit = graph_.unit(later, stages_.stages[at(place.stage)].stage);
      visit(units_[at(unit)], Place{later, place.stage, unit});
    }
  }

  // The link that a stage's output takes.
  [[nodiscard]] const LinkSpec& link_behind(const StageGraph::Stage& of) const {
    const int target = of.last ? stages_.llm_first_lane : stages_.of(of.module, of.stage + 1).lane;
    return link_between(network_, costs_, replica_, of.lane, target);
  }

  // Encoders come before the LLM, so module order is the order of dependencies.
  void forwards_before() {
    for (int module = 0; module < stages_.num_modules(); ++module) {
      for_each_unit(module, true, [&](const Place& place) {
        Unit& unit = units_[at(place.unit)];
        const StageGraph::Stage& of = stages_.stages[at(place.stage)];
        if (of.crosses) {
          unit.transfer = transfer_time(link_behind(of), cost(place).output_bytes).count();
        }
        const std::int64_t finish = unit.forward_head + cost(place).forward;
        for_each_taker(place, [&](Unit& taker, const Place& /*at*/) {
          taker.forward_head = std::max(taker.forward_head, finish + unit.transfer);
        });
        for_each_later(place, [&](Unit& later, const Place& /*at*/) {
          later.forward_head = std::max(later.forward_head, finish);
        });
      });
    }
  }

  void backwards_before() {
    for (int module = stages_.llm; module >= 0; --module) {
      for_each_unit(module, false, [&](const Place& place) {
        Unit& unit = units_[at(place.unit)];
        unit.gradient_head = unit.forward_head + cost(place).forward;
        for_each_taker(place, [&](const Unit& taker, const Place& /*at*/) {
          unit.gradient_head =
              std::max(unit.gradient_head, taker.gradient_head + taker.gradient + unit.transfer);
        });
        for_each_later(place, [&](const Unit& later, const Place& /*at*/) {
          unit.gradient_head = std::max(unit.gradient_head, later.gradient_head + later.gradient);
        });
      });
    }
  }

  void backwards_after() {
    for (int module = 0; module < stages_.num_modules(); ++module) {
      for_each_unit(module, true, [&](const Place& place) {
        Unit& unit = units_[at(place.unit)];
        unit.gradient_tail = std::max(unit.gradient_tail, unit.weight);
        if (!unit.has_gradient) {
          return;
        }
        for_each_taker(place, [&](Unit& taker, const Place& /*at*/) {
          taker.gradient_tail =
              std::max(taker.gradient_tail, unit.transfer + unit.gradient + unit.gradient_tail);
        });
        for_each_later(place, [&](Unit& later, const Place& /*at*/) {
          later.gradient_tail = std::max(later.gradient_tail, unit.gradient + unit.gradient_tail);
        });
      });
    }
  }

  void forwards_after() {
    for (int module = stages_.llm; module >= 0; --module) {
      for_each_unit(module, false, [&](const Place& place) {
        Unit& unit = units_[at(place.unit)];
        if (unit.has_gradient) {
          unit.forward_tail = unit.gradient + unit.gradient_tail;
        }
        // Both loops over encoders run after the LLM's, whose tails are known by now.
        for_each_taker(place, [&](const Unit& taker, const Place& of) {
          unit.forward_tail =
              std::max(unit.forward_tail, unit.transfer + cost(of).forward + taker.forward_tail);
        });
        for_each_later(place, [&](const Unit& later, const Place& of) {
          unit.forward_tail = std::max(unit.forward_tail, cost(of).forward + later.forward_tail);
        });
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
      const Place place = place_of(operation.unit);
      const Unit& unit = units_[at(place.unit)];
      switch (operation.kind) {
        case OperationKind::kForward:
          add(cost(place).forward, unit.forward_head, unit.forward_tail);
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
  const StageGraph& stages_;
  const ReplicaGraph& graph_;
  std::vector<Unit> units_;  // [unit]
};

}  // namespace

std::chrono::nanoseconds lane_bound(const Program& program,
                                    const StepCosts& costs,
                                    const Network& network) {
  return lane_bound(program, step_graph(program, costs), costs, network);
}

std::chrono::nanoseconds lane_bound(const Program& program,
                                    const StepGraph& graph,
                                    const StepCosts& costs,
                                    const Network& network) {
  check_network(network, program);
  std::int64_t result = 0;
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    result = std::max(result, Chains(program, graph, costs, network, replica).bound());
  }
  return std::chrono::nanoseconds{result};
}

}  // namespace entrain
