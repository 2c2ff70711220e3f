// Even slots against the search's best, by the simulator.
#pragma once

#include <optional>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Where reductions overlap compute step_ns() is an upper bound only: few slots are long ones, whose
// last ones hide more of a reduction, and are ranked too low. Slots of `lpt-2d`, of the plan's
// number and of those that evaluate fastest, and then of `dflop`, are simulated.
//
// Requires  `best` keeps the limits; the evaluator has its rules.
// Returns   the fastest of them that keeps the limits, if it is faster than `best`.
// Cost      a simulation for `best` and up to five of them.
std::optional<Placement> faster_even_slots(const AssignRequest& request,
                                           const BatchLoads& loads,
                                           StepEvaluator& evaluator,
                                           const Placement& best);

}  // namespace entrain
