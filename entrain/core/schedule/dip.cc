#include <algorithm>
#include <utility>
#include <vector>

#include "entrain/core/schedule/merge.h"
#include "entrain/core/schedule/turns.h"

namespace entrain {
namespace {

// Whether every lane hosts exactly one stage of every module, encoders beside the LLM.
bool is_colocated(const Plan& plan) {
  return plan.modules.size() > 1 &&
         std::all_of(plan.lanes.begin(), plan.lanes.end(), [&](const auto& lane) {
           std::vector<char> seen(plan.modules.size(), 0);
           for (const StageRef& ref : lane) {
             ++seen[static_cast<std::size_t>(ref.module)];
           }
           return std::all_of(seen.begin(), seen.end(), [](char count) { return count == 1; });
         });
}

}  // namespace

LaneOrders dip_order(const OrderInputs& inputs) {
  if (inputs.plan.lanes.size() == 1 || !is_colocated(inputs.plan)) {
    return one_f_one_b_order(inputs);
  }
  const std::vector<int> all_slots(inputs.stages.stages.size(), inputs.graph.num_slots);
  std::vector<std::vector<Operation>> queues;
  for (const std::vector<Operation>& stage : stage_turn_orders(inputs, all_slots)) {
    std::vector<Operation>& forwards = queues.emplace_back();
    std::vector<Operation> backwards;
    for (const Operation& operation : stage) {
      (operation.kind == OperationKind::kForward ? forwards : backwards).push_back(operation);
    }
    queues.push_back(std::move(backwards));
  }
  return merge_stage_orders(inputs, queues, MergeRule::kAlternate);
}

}  // namespace entrain
