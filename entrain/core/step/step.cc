#include "entrain/core/step/step.h"

#include <algorithm>
#include <utility>

#include "entrain/core/assigner/balance.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

// `build` makes the program, once the assignment is proven.
template <class Build>
SimulatedStep simulate_built(StepAssignment assignment,
                             const Plan& plan,
                             const StepCosts& costs,
                             const StepOptions& options,
                             const Build& build) {
  SimulatedStep step;
  step.assignment = std::move(assignment);
  if (options.prove) {
    validate_assignment(step.assignment, plan, costs);
  }
  BuiltStep built = build(step.assignment);
  if (options.prove) {
    Plan proven = plan;
    if (!options.prove_limits) {
      proven.limits.bytes_per_lane = 0;
      proven.limits.lane_bytes.clear();
    }
    validate_program(built.program, proven, step.assignment, costs);
  }
  step.timeline =
      simulate(built.program,
               built.graph,
               costs,
               {.events = options.events, .sharing = options.links, .network = options.network});
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    std::int64_t& peak = step.peak_bytes.emplace_back(0);
    for (const std::vector<LaneUsage>& replica : step.timeline.lanes) {
      peak = std::max(peak, replica[static_cast<std::size_t>(lane)].peak_bytes);
    }
    const std::int64_t limit = plan.limits.bytes_of(lane);
    if (limit > 0 && peak > limit && !step.excess) {
      step.excess = worst_excess(built.program, built.graph, plan.limits);
    }
  }
  step.program = std::move(built.program);
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
  return step;
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
  const auto build = [&](const StepAssignment& proven) {
    return build_step(plan, proven, costs, plan.schedule);
  };
  return simulate_built(std::move(assignment), plan, costs, options, build);
}

SimulatedStep simulate_orders(StepAssignment assignment,
                              const Plan& plan,
                              const StepCosts& costs,
                              const std::vector<std::vector<std::vector<Operation>>>& orders,
                              const StepOptions& options) {
  const auto build = [&](const StepAssignment& proven) {
    BuiltStep built;
    built.program = build_program_from_orders(plan, proven, costs, orders, "given");
    built.graph = step_graph(built.program, costs);
    return built;
  };
  return simulate_built(std::move(assignment), plan, costs, options, build);
}

}  // namespace entrain
