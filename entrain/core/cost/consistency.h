// What fits together, and hardly can be meant: said by every command, refused by none.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// More slots than a replica has samples, where no sample may be cut into chunks.
// Requires  global_batch >= 1, plan.replicas >= 1.
std::vector<std::string> slot_warnings(const Plan& plan, int global_batch);

// A profile that does not say what model it was made for, so that nobody can tell whether its costs
// are this model's. `name`: of its file.
std::vector<std::string> profile_warnings(const Profile& profile, const std::string& name);

}  // namespace entrain
