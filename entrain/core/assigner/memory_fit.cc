#include "entrain/core/assigner/memory_fit.h"

#include <fmt/format.h>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/policies.h"
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

bool keeps_limits(const Plan& plan, const Placement& placement, StepEvaluator& evaluator) {
  for (int replica = 0; replica < plan.replicas; ++replica) {
    if (!evaluator.choose_rule(placement, replica).fits()) {
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

MemoryMiss miss_of(const MemoryExcess& excess, const std::string& text) {
  return {excess.lane, excess.over(), fmt::format("{}, {} bytes short", text, excess.over())};
}

}  // namespace

std::optional<MemoryMiss> memory_miss(std::string_view policy, const AssignRequest& request) {
  if (!has_limit(*request.plan)) {
    return std::nullopt;
  }
  AssignRequest quick = request;
  Plan few = *request.plan;
  quick.plan = &few;
  quick.stats = false;
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
