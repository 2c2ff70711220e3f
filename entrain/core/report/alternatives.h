// The cost of other choices for one sample.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

enum class AlternativeKind : std::uint8_t {
  kOtherSlot,     // all of the sample's work in another slot of its replica
  kLlmSlot,       // only its LLM work in another slot
  kNotDeferred,   // its segments in the slot of its LLM work
  kOtherReplica,  // all of its work in a slot of another replica
};
std::string_view name_of(AlternativeKind kind);  // "other_slot", …

struct Alternative {
  AlternativeKind kind = AlternativeKind::kOtherSlot;
  int replica = 0;
  int slot = 0;                        // of the LLM work
  std::int64_t step_change_ns = 0;     // simulated step time less that of the given assignment
  std::int64_t replica_change_ns = 0;  // the same for the slowest replica that the move affects
  bool fits = true;                    // whether the plan's memory limits hold
};

// The fastest alternative of each kind, by step time, then by replica time; ties to the lower
// replica and slot. Alternatives that break deferral limits or leave a replica without samples are
// excluded, and samples cut into chunks have none.
//
// Requires  a valid assignment for this plan.
// Cost      O(slots of all replicas) simulations of one replica, twice that across replicas.
std::vector<Alternative> best_alternatives(const Plan& plan,
                                           const StepCosts& costs,
                                           const StepAssignment& assignment,
                                           int sample);

}  // namespace entrain
