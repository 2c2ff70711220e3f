// What of a run hardly can be meant, though nothing forbids it.
#pragma once

#include <string>
#include <vector>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// More slots than samples, a profile that names no model (consistency.h), and a warm-up that the
// run is too short for. Requires  the setup's configuration, plan and profile.
std::vector<std::string> run_warnings(const RunSetup& setup);

// Ranks that compute on far fewer cores than there are ranks; empty where there are enough. Nothing
// for devices, and for paced runs, which wait instead of computing.
std::string crowd_warning(const RunConfig& config, int ranks, int cores);

}  // namespace entrain::engine
