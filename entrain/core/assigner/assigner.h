// Microbatch assignment: global batch → replicas → slots → deferral.
//
// Read first: assign(). A new policy is one file, one test and one line in assigner.cc's registry.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

struct AssignRequest {
  const Plan* plan = nullptr;        // replicas, default num_slots, lanes, limits, schedule
  const StepCosts* costs = nullptr;  // of this step's global batch
  std::int64_t step = 0;
  std::uint64_t seed = 0;
};

// "sequential", "random", "lpt-2d", "entrain".
std::vector<std::string> policy_names();

// Ensures   the result passes validate_assignment(); equal requests give equal results on every
// machine;
//           stats are filled.
// Throws    InvalidInput for an unknown policy (with a suggestion) or fewer samples than replicas.
StepAssignment assign(std::string_view policy, const AssignRequest& request);

// Proves an assignment, whatever made it: every segment exactly once in its module, every sample
// exactly once in the LLM (or its chunks covering it in rising slots), no LLM slot before a
// segment's encoder slot (chunk by chunk), deferral within limits.max_deferral, num_slots lists per
// module, no text-only sample in an encoder. Throws  InvalidInput naming replica, module, slot and
// sample of the first violation.
void validate_assignment(const StepAssignment& assignment,
                         const Plan& plan,
                         const StepCosts& costs);

}  // namespace entrain
