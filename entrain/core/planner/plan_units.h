// The cost of simulating a step, counted rather than measured, so that budgets are the same on
// every machine.
#pragma once

#include <cstdint>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// A sample or segment on one stage counts one; if stages share lanes, whose replay is slower, a
// sample on a stage is five more.
std::int64_t unit_stages(const Plan& plan, const StepCosts& costs);

}  // namespace entrain
