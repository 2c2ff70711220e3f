#include "entrain/core/planner/plan_units.h"

#include <algorithm>

namespace entrain {

std::int64_t unit_stages(const Plan& plan, const StepCosts& costs) {
  const bool shares_lanes = std::any_of(
      plan.lanes.begin(), plan.lanes.end(), [](const auto& lane) { return lane.size() > 1; });
  std::int64_t count = 0;
  for (const ModuleCosts& module : costs.modules) {
    const std::int64_t replayed = shares_lanes ? 5 * std::int64_t{costs.num_samples} : 0;
    count += (module.first_unit.back() + replayed) * std::ssize(module.stages);
  }
  return count;
}

}  // namespace entrain
