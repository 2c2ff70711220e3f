// One replica's segments and LLM work in slots of equal forward time, each module for itself.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/assigner/balance_loads.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Places the replica's samples in placement.num_slots[replica] slots.
//
// Starts, of which the best after improvement stays:
// - whole samples, each to the slot where the sum of squared loads grows least; then slots in the
//   order heavy, light, heavy, light by LLM work, so that work can be deferred to a lighter
//   neighbour;
// - where deferral is unlimited: samples by rising encoder share of their work (text-only ones
//   first), their segments dealt to slots in that order, which lets the encoders run ahead of the
//   LLM; then LLM work from the last slot to the first into the least loaded slot that is late
//   enough. Once with the segments as dealt, once balanced among near slots before.
// Improvement: two slots are split anew, by trying what may lie in either (as many units or samples
// as fit a number of combinations, chosen at random from a fixed seed); one module after the other,
// then all together, where a sample that lies in both slots alone may also be deferred from one to
// the other. All pairs, until none improves or a number of combinations is spent.
//
// Requires  the replica has a sample; num_slots >= 1.
// Ensures   every segment lies at most max_deferral slots (-1: any number) before its LLM slot, and
//           none after it.
// Cost      at most 4 million combinations a start, about 10 ns each.
void balance_slots(const StepCosts& costs,
                   const BalanceTimes& times,
                   int replica,
                   int max_deferral,
                   Placement& placement);

}  // namespace entrain
