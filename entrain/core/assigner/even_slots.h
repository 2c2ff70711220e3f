// Even slots against the search's best, by the simulator.
#pragma once

#include <optional>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Where reductions overlap compute, StepEvaluator::step_ns() is an upper bound only: few slots are
// long ones, whose last ones hide more of a reduction, and are ranked too low. So slots of `lpt-2d`
// are simulated, as many as the plan has and the two numbers that evaluate fastest, and then slots
// of `dflop`.
//
// Requires  `best` keeps the limits; the evaluator has its rules.
// Returns   the fastest of them that keeps the limits, if it is faster than `best`.
// Cost      an evaluation of every replica with up to eight numbers of slots, and a simulation of
//           `best` and up to five others.
std::optional<Placement> faster_even_slots(const AssignRequest& request,
                                           const BatchLoads& loads,
                                           StepEvaluator& evaluator,
                                           const Placement& best);

}  // namespace entrain
