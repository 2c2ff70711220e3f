// Costs that turn out otherwise than those that a step was assigned by.
#pragma once

#include <cstdint>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Every sample's times in every module times a log-normal factor of mean 1, drawn for this sample
// and module; `spread`: the standard deviation of its logarithm, >= 0.
StepCosts drawn_costs(StepCosts costs, double spread, std::uint64_t seed);

// All times on the lane of the LLM's first stage times `factor` > 0, in every replica.
StepCosts slow_stage(StepCosts costs, const Plan& plan, double factor);

// The same in one replica alone, as if the devices of that lane were slow: of the samples that the
// assignment gives it.
// Requires  0 <= replica < plan.replicas, costs of the assignment's batch.
StepCosts slow_device(StepCosts costs,
                      const Plan& plan,
                      const StepAssignment& assignment,
                      int replica,
                      double factor);

}  // namespace entrain
