// One step under a plan: assigned, proven, ordered, proven, simulated and bounded, each once.
//
// Read first: simulate_step(). Training, the commands, the planner's scores and the memory rule
// use it for every step.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/network.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

// What is computed besides the assignment, its program and its simulation.
struct StepOptions {
  bool prove = true;         // validate_assignment(), validate_program(), and their cost
  bool prove_limits = true;  // false: as if no lane had a memory limit
  bool events = false;       // Timeline::events: O(operations) of memory
  bool bound = false;        // cost of step_lower_bound()
  bool balance = false;      // AssignmentStats::modules: O(items × stages)
  // What messages go over (network.h). The bound knows no links that are shared or slower.
  LinkSharing links = LinkSharing::kChannel;
  Network network{};
};

struct SimulatedStep {
  // Its stats: makespan_s always, lower_bound_s and gap with the bound, modules with the balance.
  StepAssignment assignment;
  Program program;  // ordered by plan.schedule
  Timeline timeline;
  std::vector<std::int64_t> peak_bytes;  // [lane] largest activation bytes over replicas
  std::chrono::nanoseconds bound{0};     // step_lower_bound(); 0 unless requested
  std::optional<MemoryExcess> excess;    // worst_excess() under the plan's limits
};

// Assigns with the policy; then as below.
//
// Throws  as assign(), and as below.
SimulatedStep simulate_step(std::string_view policy,
                            const AssignRequest& request,
                            const StepOptions& options = {});

// The step of a given assignment, such as one read from a file.
//
// Requires  an assignment that is valid for the plan, unless it is proven.
// Ensures   a pure function of its arguments.
// Throws    InvalidInput where the proof fails; as build_program() and simulate().
// Cost      one program, one simulation; worst_excess() only if a lane exceeds its limit.
SimulatedStep simulate_step(StepAssignment assignment,
                            const Plan& plan,
                            const StepCosts& costs,
                            const StepOptions& options = {});
// Likewise, in the compute orders of build_program_from_orders() instead of plan.schedule's.
SimulatedStep simulate_orders(StepAssignment assignment,
                              const Plan& plan,
                              const StepCosts& costs,
                              const std::vector<std::vector<std::vector<Operation>>>& orders,
                              const StepOptions& options = {});

}  // namespace entrain
