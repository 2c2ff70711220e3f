#include "entrain/core/step/step.h"

#include <utility>

#include "entrain/core/assigner/balance.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

Plan without_limits(Plan plan) {
  plan.limits.bytes_per_lane = 0;
  plan.limits.lane_bytes.clear();
  return plan;
}

bool exceeds_limits(const Timeline& timeline, const PlanLimits& limits) {
  for (const std::vector<LaneUsage>& replica : timeline.lanes) {
    for (std::size_t lane = 0; lane < replica.size(); ++lane) {
      const std::int64_t limit = limits.bytes_of(static_cast<int>(lane));
      if (limit > 0 && replica[lane].peak_bytes > limit) {
        return true;
      }
    }
  }
  return false;
}

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

void fill_stats(const Plan& plan,
                const StepCosts& costs,
                const StepOptions& options,
                SimulatedStep& step) {
  AssignmentStats& stats = step.assignment.stats;
  stats.makespan_s = seconds(step.timeline.makespan);
  if (options.bound) {
    step.bound = step_lower_bound(plan, costs, plan.schedule);
    stats.lower_bound_s = seconds(step.bound);
    stats.gap = stats.lower_bound_s > 0 ? stats.makespan_s / stats.lower_bound_s - 1 : 0;
  }
  for (int module = 0; options.balance && module <= costs.llm_module(); ++module) {
    stats.modules[plan.modules[static_cast<std::size_t>(module)].name] =
        module_balance(step.assignment, costs, module);
  }
}

}  // namespace

SimulatedStep simulate_step(std::string_view policy,
                            const AssignRequest& request,
                            const StepOptions& options) {
  return simulate_step(assign(policy, request), *request.plan, *request.costs, options);
}

SimulatedStep simulate_step(StepAssignment assignment,
                            const Plan& plan,
                            const StepCosts& costs,
                            const StepOptions& options) {
  SimulatedStep step;
  step.assignment = std::move(assignment);
  const bool proven = options.proof != StepProof::kNone;
  if (proven) {
    validate_assignment(step.assignment, plan, costs);
  }
  step.program = build_program(plan, step.assignment, costs, plan.schedule);
  if (proven) {
    validate_program(step.program,
                     options.proof == StepProof::kAll ? plan : without_limits(plan),
                     step.assignment,
                     costs);
  }
  step.timeline = simulate(step.program, costs, {.events = options.events});
  if (exceeds_limits(step.timeline, plan.limits)) {
    step.excess = worst_excess(step.program, costs, plan.limits);
  }
  fill_stats(plan, costs, options, step);
  return step;
}

}  // namespace entrain
