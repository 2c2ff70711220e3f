#include "entrain/engine/train/recompute_policy.h"

#include <algorithm>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/recompute_levels.h"

#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kStepsTried = 4;

int wanted_of(const RecomputePolicy& policy, int layers) {
  switch (policy.kind) {
    case RecomputeKind::kFull:
      return layers;
    case RecomputeKind::kEvery:
      return (layers + policy.every - 1) / policy.every;
    default:
      return 0;
  }
}

// Empty if the first steps keep the limits, else which limit one of them exceeds.
std::string excess_of(const RunSetup& setup) {
  const std::int64_t steps = std::min(setup.config.steps, kStepsTried);
  for (std::int64_t step = 0; step < steps; ++step) {
    try {
      const PreparedStep prepared = prepare_step(setup, step, /*prove_limits=*/false);
      if (prepared.excess.has_value()) {
        return concat("step ", step, ": ", to_string(prepared.program, *prepared.excess));
      }
    } catch (const NothingFits& no) {
      return concat("step ", step, ": ", no.what());
    }
  }
  return "";
}

void fit(RunSetup& setup) {
  Plan& plan = setup.plan;
  if (plan.limits.bytes_per_lane == 0 && plan.limits.lane_bytes.empty()) {
    throw InvalidInput(
        "execution.recompute = \"fit\" needs a limit to fit: plan.bytes_per_lane_mib, or limits in "
        "the plan file");
  }
  const StepCosts first = costs_of_step(setup, 0);
  const RecomputeLevels levels = recompute_levels(setup.model, plan, setup.profile, first.work);
  std::string excess;
  for (const RecomputeCounts& level : levels.levels) {
    for (std::size_t module = 0; module < plan.modules.size(); ++module) {
      plan.modules[module].recompute = level[module];
    }
    excess = excess_of(setup);
    if (excess.empty()) {
      return;
    }
  }
  throw NothingFits(concat(
      "execution.recompute = \"fit\": the plan's limits are too small even where every layer "
      "is recomputed: ",
      excess));
}

}  // namespace

void apply_recompute(RunSetup& setup) {
  const RecomputePolicy& policy = setup.config.execution.recompute;
  if (policy.kind == RecomputeKind::kPlan) {
    return;
  }
  for (ModulePlan& module : setup.plan.modules) {
    module.recompute.clear();
    for (const LayerRange& layers : module.stages) {
      module.recompute.push_back(wanted_of(policy, layers.end - layers.begin));
    }
  }
  if (policy.kind == RecomputeKind::kFit) {
    fit(setup);
  }
}

}  // namespace entrain::engine
