// Assigns one batch with the installed core: costs of your own → plan → slots → simulated step
// time.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "entrain/core/cost/cost_table.h"
#include "entrain/core/step/step.h"

namespace {

// Eight samples whose image and text costs have nothing to do with each other; the last has no
// image.
constexpr const char* kCosts =
    "sample_id,vision_tokens,vision_forward_s,vision_backward_s,llm_tokens,llm_forward_s,"
    "llm_backward_s\n"
    "a,900,0.009,0.018,300,0.006,0.012\n"
    "b,100,0.001,0.002,900,0.018,0.036\n"
    "c,400,0.004,0.008,200,0.004,0.008\n"
    "d,800,0.008,0.016,800,0.016,0.032\n"
    "e,300,0.003,0.006,100,0.002,0.004\n"
    "f,200,0.002,0.004,700,0.014,0.028\n"
    "g,700,0.007,0.014,400,0.008,0.016\n"
    "h,0,0,0,600,0.012,0.024\n";

// One encoder stage and one LLM stage, each on a lane of its own.
entrain::Plan two_lane_plan() {
  entrain::Plan plan;
  plan.replicas = 1;
  plan.num_slots = 4;
  plan.modules = {{"vision", 1, 1, {{0, 1}}}, {"llm", 1, 1, {{0, 1}}}};
  plan.lanes = entrain::default_lanes(plan.modules);
  plan.schedule = "1f1b";
  return plan;
}

void print_slots(const entrain::StepAssignment& assignment, const std::vector<std::string>& ids) {
  const entrain::ReplicaAssignment& replica = assignment.replicas.front();
  for (int slot = 0; slot < replica.num_slots; ++slot) {
    std::cout << "slot " << slot << ":";
    for (const char* module : {"vision", "llm"}) {
      const auto& slots = module[0] == 'v' ? replica.modules.front() : replica.modules.back();
      std::cout << "  " << module << " [";
      for (const entrain::WorkItem& item : slots[static_cast<std::size_t>(slot)]) {
        std::cout << " " << ids[static_cast<std::size_t>(item.sample)];
      }
      std::cout << " ]";
    }
    std::cout << "\n";
  }
}

void run() {
  const entrain::CostTable table = entrain::parse_cost_table(kCosts, "the example's costs");
  const entrain::Plan plan = two_lane_plan();
  const std::vector<int> rows = {0, 1, 2, 3, 4, 5, 6, 7};
  const entrain::StepCosts costs = entrain::table_costs(table, plan, rows, {0, 0});
  entrain::AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  for (const char* policy : {"sequential", "entrain"}) {
    const entrain::StepAssignment assignment =
        entrain::simulate_step(policy, request, {.bound = true}).assignment;
    std::cout << policy << ": step time " << assignment.stats.makespan_s << " s, lower bound "
              << assignment.stats.lower_bound_s << " s\n";
    print_slots(assignment, table.ids);
  }
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
