// How many layers the run recomputes, by execution.recompute.
#pragma once

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Sets the counts of setup.plan as setup.config.execution.recompute asks. "fit" takes the first
// level of recompute_levels() under which the run's first steps, at most four, keep the plan's
// limits by simulation: later steps are only as likely to.
//
// Requires  all of `setup` but identity, resume and warnings.
// Throws    InvalidInput for "fit" without limits; NothingFits where recomputing all is not enough,
//           saying what is missing.
void apply_recompute(RunSetup& setup);

}  // namespace entrain::engine
