#include "entrain/core/study/cases.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/parallel.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// What all cases of a step share.
struct StepInputs {
  StepCosts costs;
  Plan plan;  // with the step's memory limits
};

StepInputs make_inputs(const CasesRequest& request, std::int64_t step) {
  StepInputs inputs;
  inputs.plan = request.plan;
  inputs.costs = batch_costs(*request.study, inputs.plan, draw_batch(*request.study, step));
  apply_memory_rule(request.memory, inputs.costs, step, request.study->inputs.seed, inputs.plan);
  return inputs;
}

// [module] forward time of each replica's share, spread over replicas.
std::vector<Spread> replica_spreads(const StepAssignment& assignment, const StepCosts& costs) {
  std::vector<Spread> result;
  for (int module = 0; module <= costs.llm_module(); ++module) {
    std::vector<double> loads;
    for (const ReplicaAssignment& replica : assignment.replicas) {
      std::int64_t load = 0;
      for (const StageCosts& stage : costs.modules[at(module)].stages) {
        std::vector<char> counted(stage.units.size(), 0);  // a sample's chunks count once
        for (const Slot& slot : replica.modules[at(module)]) {
          for (const WorkItem& item : slot) {
            const std::size_t unit = at(costs.unit_of(module, item));
            load += counted[unit] == 0 ? stage.units[unit].time.forward.count() : 0;
            counted[unit] = 1;
          }
        }
      }
      loads.push_back(static_cast<double>(load));
    }
    result.push_back(spread_of(loads));
  }
  return result;
}

bool at_plan_slots(const StepAssignment& assignment, const Plan& plan) {
  return std::all_of(
      assignment.replicas.begin(),
      assignment.replicas.end(),
      [&](const ReplicaAssignment& replica) { return replica.num_slots == plan.num_slots; });
}

class CaseRunner {
 public:
  CaseRunner(const CasesRequest& request, const StepInputs& inputs, std::int64_t step)
      : inputs_(inputs), plan_(inputs.plan) {
    request_.options = request.options;
    request_.objective = request.objective;
    request_.plan = &plan_;
    request_.costs = &inputs.costs;
    request_.step = step;
    request_.seed = request.study->inputs.seed;
  }

  CaseStep run(const std::string& policy, const std::string& schedule) {
    plan_.policy = policy;
    plan_.schedule = schedule;
    CaseStep result;
    StepAssignment assignment;
    try {
      assignment = assign(policy, request_);
    } catch (const NothingFits& no) {
      result.refused = no.what();
      return result;
    }
    validate_assignment(assignment, plan_, inputs_.costs);
    simulate_step(assignment, result);
    result.assign_ms = assignment.stats.assign_ms;
    result.replicas = replica_spreads(assignment, inputs_.costs);
    measure_balance(policy, assignment, result);
    for (const ReplicaAssignment& replica : assignment.replicas) {
      result.num_slots.push_back(replica.num_slots);
      result.deferred += std::ssize(deferrals(replica));
    }
    return result;
  }

 private:
  void simulate_step(const StepAssignment& assignment, CaseStep& result) const {
    const StepCosts& costs = inputs_.costs;
    const Program program = build_program(plan_, assignment, costs, plan_.schedule);
    Plan unlimited = plan_;
    unlimited.limits.bytes_per_lane = 0;
    unlimited.limits.lane_bytes.clear();
    validate_program(program, unlimited, assignment, costs);
    const Timeline timeline = simulate(program, costs, {.events = true});
    const std::chrono::nanoseconds bound = step_lower_bound(plan_, costs, plan_.schedule);
    result.step_ns = timeline.makespan.count();
    result.bound_ns = bound.count();
    result.causes = gap_causes(program, timeline, costs, bound);
    result.bubble = bubble_fraction(timeline);
    for (const std::vector<LaneUsage>& replica : timeline.lanes) {
      for (const LaneUsage& lane : replica) {
        result.peak_bytes = std::max(result.peak_bytes, lane.peak_bytes);
      }
    }
    if (const auto excess = worst_excess(program, costs, plan_.limits)) {
      result.over_bytes = excess->over();
      result.over = to_string(program, *excess);
    }
  }

  void measure_balance(const std::string& policy,
                       const StepAssignment& assignment,
                       CaseStep& result) {
    std::optional<StepAssignment> fixed;
    if (!at_plan_slots(assignment, plan_)) {
      AssignRequest request = request_;
      request.options.choose_slots = false;
      try {
        fixed = assign(policy, request);
        result.equal_slots = at_plan_slots(*fixed, plan_);
      } catch (const NothingFits&) {
        result.equal_slots = false;
      }
    }
    const StepAssignment& measured = fixed && result.equal_slots ? *fixed : assignment;
    for (int module = 0; module <= inputs_.costs.llm_module(); ++module) {
      result.balance.push_back(module_balance(measured, inputs_.costs, module));
    }
  }

  const StepInputs& inputs_;
  Plan plan_;
  AssignRequest request_;
};

}  // namespace

std::vector<CaseResult> run_cases(const CasesRequest& request) {
  ENTRAIN_INVARIANT(request.study != nullptr, "cases need a study");
  std::vector<StepInputs> inputs(at(request.steps));
  parallel_for(request.steps, request.threads, [&](std::int64_t step) {
    inputs[at(step)] = make_inputs(request, step);
  });
  std::vector<CaseResult> results;
  for (const std::string& schedule : request.schedules) {
    for (const std::string& policy : request.policies) {
      results.push_back({policy, schedule, std::vector<CaseStep>(at(request.steps))});
    }
  }
  std::mutex mutex;
  parallel_for(std::ssize(results) * request.steps, request.threads, [&](std::int64_t index) {
    CaseResult& result = results[at(index / request.steps)];
    const std::int64_t step = index % request.steps;
    result.steps[at(step)] =
        CaseRunner(request, inputs[at(step)], step).run(result.policy, result.schedule);
    if (request.on_case) {
      const std::lock_guard<std::mutex> lock(mutex);
      request.on_case();
    }
  });
  return results;
}

}  // namespace entrain
