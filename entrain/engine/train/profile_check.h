// Checks that a run's costs match its precision and this machine.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/profile.h"

#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Predictions and assignments use the profile. Warns if the profile has another
// precision than the run, and if it, or the costs of the plan file, were not measured on the
// run's device of this machine.
void check_profile(const RunConfig& config,
                   const Profile& profile,
                   std::vector<std::string>& warnings);

}  // namespace entrain::engine
