// Decides how many layers the run recomputes, from execution.recompute.
#pragma once

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Sets the counts of setup.plan from setup.config.execution.recompute. "fit" takes the first
// level of recompute_levels() under which the run's first steps, at most four, keep the plan's
// limits by simulation; later steps may exceed them.
//
// Requires  all of `setup` but identity, resume and warnings.
// Throws    InvalidInput for "fit" without limits; NothingFits if recomputing all is not enough,
//           with the missing bytes.
void apply_recompute(RunSetup& setup);

}  // namespace entrain::engine
