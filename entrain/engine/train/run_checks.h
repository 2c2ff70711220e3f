// Warnings about settings that are allowed but unlikely to be intended.
#pragma once

#include <string>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Adds to the setup's warnings: more slots than samples, a profile that names no model
// (consistency.h), and a warm-up longer than the run. Requires  configuration, plan and profile.
void add_run_warnings(RunSetup& setup);

// Warns of ranks on far fewer cores than there are ranks; empty if there are enough. Empty
// for GPUs, and for paced runs, which wait instead of computing.
std::string crowd_warning(const RunConfig& config, int ranks, int cores);

}  // namespace entrain::engine
