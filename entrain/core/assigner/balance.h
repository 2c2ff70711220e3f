// How evenly an assignment loads its slots, for reports.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"

namespace entrain {

// Balance of one module in every replica, and the mean over the replicas with work of it: forward
// times of a replica's slots, summed over the module's stages, launch constants left out. Empty
// slots count with 0; times and ratios are 0 for a replica without work. Chunks are units of their
// own, also for floor_cv.
//
// Ensures  floor_cv <= cv in every replica, and therefore of the means: no placement of the
//          replicas' shares in as many slots is more even. Other shares may be.
ModuleBalance module_balance(const StepAssignment& assignment, const StepCosts& costs, int module);

// A proven lower bound on the coefficient of variation of any placement of indivisible `units` into
// `num_slots` slots; 0 when there is no work.
//
// Why  for every h, the loads of any placement majorise (w_1 … w_h, f … f): the h largest units
//      separate and the rest spread evenly over the other slots, where f <= w_h (the k slots that
//      hold the k largest units weigh at least as much as these; the rest cannot be more even than
//      even). A convex function, such as the sum of squares, is therefore least there.
// Cost  O(n log n).
double floor_cv(std::vector<std::int64_t> units, std::int64_t num_slots);

}  // namespace entrain
