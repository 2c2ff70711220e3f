// What of a run hardly can be meant, though nothing forbids it.
#pragma once

#include <string>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// More slots than samples, a profile that names no model (consistency.h), and a warm-up that the
// run is too short for: into the setup's warnings. Requires  its configuration, plan and profile.
void add_run_warnings(RunSetup& setup);

// Ranks that compute on far fewer cores than there are ranks; empty where there are enough. Nothing
// for devices, and for paced runs, which wait instead of computing.
std::string crowd_warning(const RunConfig& config, int ranks, int cores);

}  // namespace entrain::engine
