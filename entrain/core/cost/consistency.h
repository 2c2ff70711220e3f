// Combinations that are allowed but unlikely to be intended: every command warns of them.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// More slots than a replica has samples, if no sample may be cut into chunks.
// Requires  global_batch >= 1, plan.replicas >= 1.
std::vector<std::string> slot_warnings(const Plan& plan, int global_batch);

// A profile that does not name its model, so that its costs cannot be checked against
// this model. `name`: of its file.
std::vector<std::string> profile_warnings(const Profile& profile, const std::string& name);

}  // namespace entrain
