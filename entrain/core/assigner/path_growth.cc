#include "entrain/core/assigner/path_growth.h"

#include <algorithm>
#include <limits>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr std::int64_t kNotSummed = -1;

}  // namespace

PathGrowth::PathGrowth(const PlacementGraph& graph, const StepCosts& costs, int replicas)
    : graph_(graph),
      costs_(costs),
      known_(at(replicas), 0),
      weights_(at(replicas), std::vector<std::vector<Weight>>(costs.modules.size())),
      cost_of_(at(costs.num_samples), kNotSummed) {}

void PathGrowth::set(const Placement& placement,
                     int replica,
                     const ReplicaGraph& graph,
                     const CriticalChain& path) {
  std::vector<Weight> of_cost(graph.costs.size());
  for (const OrderTerm& term : path.terms) {
    Weight& weight = of_cost[at(term.cost)];
    using Part = OrderPart;
    weight.forward += term.part == Part::kForward ? 1 : 0;
    weight.input += term.part == Part::kInput || term.part == Part::kBackward ? 1 : 0;
    weight.weight += term.part == Part::kWeight || term.part == Part::kBackward ? 1 : 0;
    weight.split += term.part == Part::kWeight ? 1 : 0;
  }
  for (int module = 0; module <= costs_.llm_module(); ++module) {
    const std::size_t kinds = graph_.num_kinds(module);
    std::vector<Weight>& weights = weights_[at(replica)][at(module)];
    weights.assign(kinds * at(graph.num_slots), {});
    for (int number = graph.first_group[at(module)]; number < graph.end_of(module); ++number) {
      const GraphGroup& group = graph.group(number);
      if (graph.is_llm(number) && group.turn != group.slot) {
        continue;  // chunks that others follow
      }
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        Weight& weight = weights[at(group.slot) * kinds + kind];
        const Weight& add = of_cost[at(group.first_cost) + kind];
        weight.forward = std::max(weight.forward, add.forward);
        weight.input = std::max(weight.input, add.input);
        weight.weight = std::max(weight.weight, add.weight);
        weight.split = std::max(weight.split, add.split);
      }
    }
  }
  for (const int sample : placement.samples[at(replica)]) {
    cost_of_[at(sample)] = kNotSummed;
  }
  known_[at(replica)] = 1;
}

// Few samples are asked for before the replica's next path.
std::int64_t PathGrowth::cost_before(const PlacementEdit& edit, int replica, int sample) {
  std::int64_t& sum = cost_of_[at(sample)];
  if (sum == kNotSummed) {
    sum = cost(edit.before(), replica, sample);
  }
  return sum;
}

std::int64_t PathGrowth::unit_cost(int replica, int module, int slot, int unit) const {
  const std::size_t kinds = graph_.num_kinds(module);
  const Weight* weights = &weights_[at(replica)][at(module)][at(slot) * kinds];
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    const GraphUnit of = graph_.cost_of(module, unit, kind);
    sum += weights[kind].forward * of.forward + weights[kind].input * of.backward_input +
           weights[kind].weight * of.backward_weight + weights[kind].split * of.split;
  }
  return sum;
}

std::int64_t PathGrowth::cost(const Placement& placement, int replica, int sample) const {
  const int llm = costs_.llm_module();
  std::int64_t sum = unit_cost(replica, llm, placement.llm_slot[at(sample)], sample);
  for (int module = 0; module < llm; ++module) {
    graph_.for_each_part(module, placement, sample, [&](int slot, int unit) {
      sum += unit_cost(replica, module, slot, unit);
    });
  }
  return sum;
}

std::int64_t PathGrowth::of(const PlacementEdit& edit, int replica) {
  if (edit.reshapes() || (known_[at(replica)] == 0 && !edit.empty())) {
    return std::numeric_limits<std::int64_t>::min();
  }
  std::int64_t growth = 0;
  for (const int sample : edit.samples()) {
    growth -= edit.replica_before(sample) == replica ? cost_before(edit, replica, sample) : 0;
    growth += edit.replica_of(sample) == replica ? cost(edit.placement(), replica, sample) : 0;
  }
  return growth;
}

}  // namespace entrain
