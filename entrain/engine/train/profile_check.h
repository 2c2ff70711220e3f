// Whether a run's costs are of its precision and of this machine.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/profile.h"

#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// What is predicted, and assigned by it, comes from the profile: one warning where it is of another
// precision than the run, and one where it, or the costs of the plan file, were not measured on the
// run's device of this machine.
void check_profile(const RunConfig& config,
                   const Profile& profile,
                   std::vector<std::string>& warnings);

}  // namespace entrain::engine
