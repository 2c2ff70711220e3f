// One replica's segments and LLM work in slots of equal forward time, each module separately.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/assigner/balance_loads.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Places the replica's samples in placement.num_slots[replica] slots.
//
// Starts, of which the best after improvement is used:
// - whole samples, each to the slot where the sum of squared loads grows least; then slots in the
//   order heavy, light, heavy, light by LLM work, so that work can be deferred to a lighter
//   neighbour;
// - if deferral is unlimited: samples by rising encoder share of their work (text-only ones
//   first), their segments distributed to slots in that order, which lets the encoders run ahead of
//   the LLM; then LLM work from the last slot to the first into the least loaded slot that is late
//   enough. Once with these segments, once with segments balanced among near slots first.
// Improvement: two slots are redistributed by trying the units that may be in either (as many as
// fit a number of combinations, chosen at random from a fixed seed); one module after the other,
// then all together, where a sample with all its work in these slots may also be deferred from one
// to the other. All pairs, until none improves or a number of combinations is used up.
//
// Requires  the replica has a sample; num_slots >= 1.
// Ensures   every segment is at most max_deferral slots (-1: any number) before its LLM slot, and
//           none after it.
// Cost      at most 4 million combinations a start, about 10 ns each.
void balance_slots(const StepCosts& costs,
                   const BalanceTimes& times,
                   int replica,
                   int max_deferral,
                   Placement& placement);

}  // namespace entrain
