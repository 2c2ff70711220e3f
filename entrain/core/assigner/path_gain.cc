#include "entrain/core/assigner/path_gain.h"

#include <algorithm>
#include <span>

#include "entrain/core/base/at.h"

namespace entrain {

PathGain::PathGain(const PlacementGraph& graph, const StepCosts& costs, int replicas)
    : graph_(graph),
      costs_(costs),
      known_(at(replicas), 0),
      weights_(at(replicas)),
      cost_of_(at(costs.num_samples), 0),
      replica_of_(at(costs.num_samples), 0) {
  for (const ModuleCosts& module : costs.modules) {
    std::vector<int>& sample_of = sample_of_.emplace_back(at(module.first_unit.back()), 0);
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      std::fill(sample_of.begin() + module.first_unit[at(sample)],
                sample_of.begin() + module.first_unit[at(sample + 1)],
                sample);
    }
  }
}

void PathGain::set_path(const Placement& placement,
                        int replica,
                        const ReplicaGraph& graph,
                        const OrderReplay& orders,
                        const std::vector<std::int64_t>& times) {
  std::vector<Weight> of_cost(graph.costs.size());
  orders.visit_critical_path(graph, times, [&](int cost, OrderReplay::Part part) {
    Weight& weight = of_cost[at(cost)];
    using Part = OrderReplay::Part;
    weight.forward += part == Part::kForward ? 1 : 0;
    weight.input += part == Part::kInput || part == Part::kBackward ? 1 : 0;
    weight.weight += part == Part::kWeight || part == Part::kBackward ? 1 : 0;
    weight.split += part == Part::kWeight ? 1 : 0;
  });
  std::vector<std::vector<Weight>>& weights = weights_[at(replica)];
  weights.resize(costs_.modules.size());
  for (std::size_t module = 0; module < weights.size(); ++module) {
    const std::size_t kinds = graph_.costs_of(static_cast<int>(module), 0).size();
    weights[module].assign(kinds * at(graph.num_slots), {});
    for (int number = graph.first_group[module]; number < graph.first_group[module + 1]; ++number) {
      const GraphGroup& group = graph.group(number);
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        Weight& weight = weights[module][at(group.slot) * kinds + kind];
        const Weight& add = of_cost[at(group.first_cost) + kind];
        weight.forward = std::max(weight.forward, add.forward);
        weight.input = std::max(weight.input, add.input);
        weight.weight = std::max(weight.weight, add.weight);
        weight.split = std::max(weight.split, add.split);
      }
    }
  }
  for (const int sample : placement.samples[at(replica)]) {
    replica_of_[at(sample)] = replica;
    cost_of_[at(sample)] = cost(placement, replica, sample);
  }
  known_[at(replica)] = 1;
}

std::int64_t PathGain::unit_cost(int replica, int module, int slot, int unit) const {
  const std::vector<Weight>& weights = weights_[at(replica)][at(module)];
  const std::span<const GraphUnit> costs = graph_.costs_of(module, unit);
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < costs.size(); ++kind) {
    const Weight& weight = weights[at(slot) * costs.size() + kind];
    const GraphUnit& of = costs[kind];
    sum += weight.forward * of.forward + weight.input * of.backward_input +
           weight.weight * of.backward_weight + weight.split * of.split;
  }
  return sum;
}

std::int64_t PathGain::cost(const Placement& placement, int replica, int sample) const {
  const int llm = costs_.llm_module();
  std::int64_t sum = unit_cost(replica, llm, placement.llm_slot[at(sample)], sample);
  for (int module = 0; module < llm; ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    const std::vector<int>& slots = placement.encoder_slot[at(module)];
    const int begin = first[at(sample)];
    const int end = first[at(sample + 1)];
    if (begin == end) {
      continue;
    }
    if (std::equal(slots.begin() + begin + 1, slots.begin() + end, slots.begin() + begin)) {
      sum += unit_cost(replica, module, slots[at(begin)], first.back() + sample);
      continue;
    }
    for (int unit = begin; unit < end; ++unit) {
      sum += unit_cost(replica, module, slots[at(unit)], unit);
    }
  }
  return sum;
}

std::array<std::int64_t, 2> PathGain::growth(const PlacementEdit& edit,
                                             const std::array<int, 2>& of) {
  std::array<std::int64_t, 2> result = {0, 0};
  if (edit.changed_more() || of[0] < 0 || known_[at(of[0])] == 0 ||
      (of[1] >= 0 && known_[at(of[1])] == 0)) {
    return {kUnknown, kUnknown};
  }
  seen_.clear();
  const auto see = [&](int sample) {
    if (std::find(seen_.begin(), seen_.end(), sample) == seen_.end()) {
      seen_.push_back(sample);
    }
  };
  edit.for_each_changed(see, [&](int module, int unit) { see(sample_of_[at(module)][at(unit)]); });
  for (const int sample : seen_) {
    const int from = replica_of_[at(sample)];
    result[from == of[0] ? 0 : 1] -= cost_of_[at(sample)];
    const int to = edit.replica_of(sample, from, from == of[0] ? of[1] : of[0]);
    result[to == of[0] ? 0 : 1] += cost(edit.placement(), to, sample);
  }
  return result;
}

}  // namespace entrain
