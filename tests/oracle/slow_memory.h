// The memory rules of simulator.h taken word for word: unit after unit, from where to where it is
// alive.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"

namespace entrain::oracle {

// Bytes held by a lane while each operation of its list runs, summed over what is alive there.
std::vector<std::int64_t> slow_memory(const Program& program,
                                      const StepCosts& costs,
                                      int replica,
                                      int lane);

}  // namespace entrain::oracle
