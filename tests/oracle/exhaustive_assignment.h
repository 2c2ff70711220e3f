// The best assignment of a tiny batch, found by trying all of them.
#pragma once

#include <cstdint>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain::oracle {

struct ExhaustiveResult {
  StepAssignment assignment;  // the first of the fastest
  std::int64_t step_ns = 0;
  std::int64_t tried = 0;
};

// Tries every number of slots up to `max_slots` (each replica its own), every replica and LLM slot
// of every sample, and every encoder slot of every segment that limits.max_deferral allows, with a
// sample in every replica, and simulates each under plan.schedule. Memory is not looked at.
//
// Requires  1 <= max_slots; few samples: the number of placements grows with
//           (replicas × slots^(segments + 1))^samples.
ExhaustiveResult exhaustive_assignment(const Plan& plan, const StepCosts& costs, int max_slots);

// How many placements that would be, at most: to skip instances that are too large.
std::int64_t exhaustive_size(const Plan& plan, const StepCosts& costs, int max_slots);

}  // namespace entrain::oracle
