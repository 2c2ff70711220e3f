// Warnings about settings that are allowed but unlikely to be intended.
#pragma once

#include <string>
#include <vector>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Predictions and assignments use the profile. Warns if the profile has another
// precision than the run, and if it, or the costs of the plan file, were not measured on the
// run's device of this machine.
void check_profile(const RunConfig& config,
                   const Profile& profile,
                   std::vector<std::string>& warnings);

// Adds to the setup's warnings: more slots than samples, a profile that names no model
// (consistency.h), and a warm-up longer than the run. Requires  configuration, plan and profile.
void add_run_warnings(RunSetup& setup);

// Warns of ranks on far fewer cores than there are ranks; empty if there are enough. Empty
// for GPUs, and for paced runs, which wait instead of computing.
std::string crowd_warning(const RunConfig& config, int ranks, int cores);

}  // namespace entrain::engine
