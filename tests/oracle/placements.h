// From an assignment back to the arrays that the assigner works on.
#pragma once

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/spec/assignment.h"

namespace entrain::oracle {

// Requires  a valid assignment.
inline Placement placement_of(const StepAssignment& assignment, const StepCosts& costs) {
  const auto replicas = static_cast<int>(assignment.replicas.size());
  Placement placement = empty_placement(costs, replicas, 1);
  for (int replica = 0; replica < replicas; ++replica) {
    const ReplicaAssignment& part = assignment.replicas[static_cast<std::size_t>(replica)];
    placement.num_slots[static_cast<std::size_t>(replica)] = part.num_slots;
    for (int module = 0; module <= costs.llm_module(); ++module) {
      const ModuleSlots& slots = part.modules[static_cast<std::size_t>(module)];
      for (int slot = 0; slot < part.num_slots; ++slot) {
        for (const WorkItem& item : slots[static_cast<std::size_t>(slot)]) {
          if (module == costs.llm_module()) {
            if (item.token_begin == 0) {
              placement.samples[static_cast<std::size_t>(replica)].push_back(item.sample);
            }
            const auto sample = static_cast<std::size_t>(item.sample);
            placement.llm_slot[sample] = slot;
            if (item.is_chunk()) {
              placement.chunks[sample].push_back({slot, item.token_end});
            }
          } else {
            const int unit = costs.unit_of(module, item);
            placement
                .encoder_slot[static_cast<std::size_t>(module)][static_cast<std::size_t>(unit)] =
                slot;
          }
        }
      }
    }
  }
  return placement;
}

}  // namespace entrain::oracle
