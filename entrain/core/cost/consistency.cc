#include "entrain/core/cost/consistency.h"

#include <fmt/format.h>

#include "entrain/core/base/text.h"

namespace entrain {

std::vector<std::string> slot_warnings(const Plan& plan, int global_batch) {
  const int most = (global_batch + plan.replicas - 1) / plan.replicas;  // of the fullest replica
  if (plan.limits.chunks || plan.num_slots <= most) {
    return {};
  }
  return {fmt::format(
      "num_slots = {} for a global batch of {} over {}, at most {} per replica: at least {} "
      "without LLM work",
      format_count(plan.num_slots),
      format_count(global_batch),
      counted(plan.replicas, "replica"),
      counted(most, "sample"),
      counted(plan.num_slots - most, "slot"))};
}

std::vector<std::string> profile_warnings(const Profile& profile, const std::string& name) {
  if (!profile.model_digest.empty()) {
    return {};
  }
  return {fmt::format(
      "profile '{}' has no model_digest: whether its costs match this model's layers cannot "
      "be checked (`entrain profile` writes one)",
      name)};
}

}  // namespace entrain
