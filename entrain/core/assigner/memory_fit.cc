#include "entrain/core/assigner/memory_fit.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/slot_bytes.h"
#include "entrain/core/base/text.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"

namespace entrain {
namespace {

bool has_limit(const Plan& plan) {
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    if (plan.limits.bytes_of(lane) > 0) {
      return true;
    }
  }
  return false;
}

std::string stages_text(const Plan& plan, const std::vector<StageRef>& lane) {
  std::vector<std::string> stages;
  for (const StageRef& ref : lane) {
    stages.push_back(
        fmt::format("{} {}", plan.modules[static_cast<std::size_t>(ref.module)].name, ref.stage));
  }
  return join(stages);
}

bool keeps_limits(const Plan& plan, const Placement& placement, StepEvaluator& evaluator) {
  for (int replica = 0; replica < plan.replicas; ++replica) {
    if (!evaluator.fits(placement, replica)) {
      return false;
    }
  }
  return true;
}

// What the policy `entrain` never does worse than.
bool fits_at_once(const AssignRequest& request) {
  StepEvaluator evaluator(*request.plan, *request.costs);
  for (const Policy place : {sequential_policy, one_sample_a_slot, lpt_2d_policy}) {
    if (keeps_limits(*request.plan, place(request), evaluator)) {
      return true;
    }
  }
  return false;
}

// What a lane holds at one moment for a sample by itself, whatever is run: when the LLM's backward
// of it begins there, none of its backwards on earlier stages has run, and none of its segments',
// which wait for the LLM's input gradient. What takes no part in backward is left out, and the LLM
// where chunks may cut its work.
std::int64_t bytes_of_sample(const Plan& plan,
                             const StepCosts& costs,
                             const std::vector<StageRef>& lane,
                             int sample) {
  std::int64_t bytes = 0;
  std::int64_t recomputed = 0;
  int last = -1;  // LLM stage of the lane
  for (const StageRef& ref : lane) {
    if (ref.module == costs.llm_module() && plan.limits.chunks) {
      continue;
    }
    const ModuleCosts& module = costs.modules[static_cast<std::size_t>(ref.module)];
    const StageCosts& stage = module.stages[static_cast<std::size_t>(ref.stage)];
    for (int unit = module.first_unit[static_cast<std::size_t>(sample)];
         unit < module.first_unit[static_cast<std::size_t>(sample) + 1];
         ++unit) {
      const UnitCost& cost = stage.units[static_cast<std::size_t>(unit)];
      if (cost.time.backward().count() == 0) {
        continue;
      }
      bytes += cost.activation_bytes;
      if (ref.module == costs.llm_module() && ref.stage > last) {
        last = ref.stage;
        recomputed = cost.recompute.largest;
      }
    }
  }
  return bytes + recomputed;
}

MemoryMiss miss_of(const MemoryExcess& excess, const std::string& text) {
  return {excess.lane, excess.over(), fmt::format("{}, {} bytes short", text, excess.over())};
}

}  // namespace

// Of the lane that lacks most.
std::optional<MemoryMiss> sample_miss(const Plan& plan, const StepCosts& costs) {
  std::optional<MemoryMiss> worst;
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    const std::vector<StageRef>& stages = plan.lanes[static_cast<std::size_t>(lane)];
    const std::int64_t limit = plan.limits.bytes_of(lane);
    std::int64_t most = 0;
    for (int sample = 0; sample < costs.num_samples && limit > 0; ++sample) {
      most = std::max(most, bytes_of_sample(plan, costs, stages, sample));
    }
    if (most - limit > (worst ? worst->missing_bytes : 0)) {
      worst = MemoryMiss{lane,
                         most - limit,
                         fmt::format("lane {} ({}) needs {} ({} bytes) for the largest sample "
                                     "alone; allowed: {} ({} bytes), {} bytes short",
                                     lane,
                                     stages_text(plan, stages),
                                     format_bytes(most),
                                     most,
                                     format_bytes(limit),
                                     limit,
                                     most - limit)};
    }
  }
  return worst;
}

std::optional<MemoryMiss> memory_miss(std::string_view policy, const AssignRequest& request) {
  if (!has_limit(*request.plan)) {
    return std::nullopt;
  }
  AssignRequest quick = request;
  Plan few = *request.plan;
  quick.plan = &few;
  if (std::optional<MemoryMiss> miss = sample_miss(*request.plan, *request.costs)) {
    return miss;
  }
  if (policy == "entrain") {
    if (fits_at_once(request)) {
      return std::nullopt;
    }
    few.limits.evaluations = kFewEvaluations;
  }
  try {
    const StepAssignment assignment = assign(policy, quick);
    const Program program =
        build_program(*request.plan, assignment, *request.costs, request.plan->schedule);
    const auto excess = worst_excess(program, *request.costs, request.plan->limits);
    return excess ? std::optional(miss_of(*excess, to_string(program, *excess))) : std::nullopt;
  } catch (const OverLimits& error) {
    return miss_of(error.excess(), error.what());
  }
}

}  // namespace entrain
