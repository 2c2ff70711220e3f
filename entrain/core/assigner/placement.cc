#include "entrain/core/assigner/placement.h"

#include <algorithm>

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

Placement empty_placement(const StepCosts& costs, int replicas, int num_slots) {
  Placement result;
  result.num_slots.assign(at(replicas), num_slots);
  result.samples.resize(at(replicas));
  result.llm_slot.assign(at(costs.num_samples), 0);
  for (int module = 0; module < costs.llm_module(); ++module) {
    result.encoder_slot.emplace_back(at(costs.num_units(module)), 0);
  }
  return result;
}

void place_sample(const StepCosts& costs, int sample, int slot, Placement& placement) {
  placement.llm_slot[at(sample)] = slot;
  for (int module = 0; module < costs.llm_module(); ++module) {
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      placement.encoder_slot[at(module)][at(unit)] = slot;
    }
  }
}

ReplicaAssignment to_assignment(const StepCosts& costs, const Placement& placement, int replica) {
  ReplicaAssignment result;
  result.num_slots = placement.num_slots[at(replica)];
  result.modules.assign(costs.modules.size(), ModuleSlots(at(result.num_slots)));
  const int llm = costs.llm_module();
  for (const int sample : placement.samples[at(replica)]) {
    result.modules[at(llm)][at(placement.llm_slot[at(sample)])].push_back({.sample = sample});
    for (int module = 0; module < llm; ++module) {
      const std::vector<int>& first = costs.modules[at(module)].first_unit;
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        const int slot = placement.encoder_slot[at(module)][at(unit)];
        result.modules[at(module)][at(slot)].push_back(
            {.sample = sample, .segment = unit - first[at(sample)]});
      }
    }
  }
  return result;
}

StepAssignment to_assignment(const StepCosts& costs, const Placement& placement) {
  StepAssignment result;
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    result.replicas.push_back(to_assignment(costs, placement, static_cast<int>(replica)));
  }
  return result;
}

std::vector<int> even_runs(int count, int parts) {
  std::vector<int> begins;
  for (int part = 0; part <= parts; ++part) {
    begins.push_back(static_cast<int>(std::int64_t{count} * part / parts));
  }
  return begins;
}

Placement deal_in_order(const StepCosts& costs,
                        const std::vector<int>& order,
                        int replicas,
                        int num_slots) {
  Placement result = empty_placement(costs, replicas, num_slots);
  const std::vector<int> runs = even_runs(static_cast<int>(order.size()), replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<int>& samples = result.samples[at(replica)];
    samples.assign(order.begin() + runs[at(replica)], order.begin() + runs[at(replica + 1)]);
    const int count = static_cast<int>(samples.size());
    const int slots = std::max(1, std::min(num_slots, count));
    result.num_slots[at(replica)] = slots;
    const std::vector<int> slot_runs = even_runs(count, slots);
    for (int slot = 0; slot < slots; ++slot) {
      for (int i = slot_runs[at(slot)]; i < slot_runs[at(slot + 1)]; ++i) {
        place_sample(costs, samples[at(i)], slot, result);
      }
    }
  }
  return result;
}

}  // namespace entrain
