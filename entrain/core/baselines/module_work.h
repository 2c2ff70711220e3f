// Costs of samples and units in the encoders and in the LLM, for policies that use one cost or
// both, whatever the plan's lanes.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"

namespace entrain {

// Nanoseconds of forward and backward, summed over all stages; launch constants left out.
struct ModuleWork {
  std::vector<std::int64_t> encoder;  // [sample] all encoders together; 0 for text-only samples
  std::vector<std::int64_t> llm;      // [sample]
};

// Cost  O(units × stages).
ModuleWork module_work(const StepCosts& costs);

// [unit] nanoseconds of forward of one module, summed over its stages; launch constants left out.
std::vector<std::int64_t> forward_times(const StepCosts& costs, int module);

}  // namespace entrain
