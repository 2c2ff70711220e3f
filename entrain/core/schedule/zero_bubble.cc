#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/turns.h"

namespace entrain {
namespace {

// Per module, the most slots that a stage on a way through it holds under `1f1b`: those of the
// stage furthest from the loss that takes part in backward. 0 where none does.
std::vector<int> most_slots(const OrderInputs& inputs) {
  const StageGraph& stages = inputs.stages;
  std::vector<int> result(at(stages.num_modules()), 0);
  for (const GraphGroup& group : inputs.graph.groups) {
    if (group.first_backward < stages.num_stages(group.module)) {
      result[at(group.module)] = std::max(
          result[at(group.module)], stages.of(group.module, group.first_backward).warm_up + 1);
    }
  }
  result[at(stages.llm)] = *std::max_element(result.begin(), result.end());
  return result;
}

}  // namespace

LaneOrders zb_h1_order(const OrderInputs& inputs) {
  const std::vector<int> slots = most_slots(inputs);
  std::vector<int> delay;
  for (const StageGraph::Stage& stage : inputs.stages.stages) {
    delay.push_back(std::max(0, slots[at(stage.module)] - (stage.warm_up + 1)));
  }
  return turn_order(inputs, stages_that_follow(inputs.stages), delay);
}

LaneOrders zb_h2_order(const OrderInputs& inputs) {
  if (inputs.plan.lanes.size() == 1 && inputs.plan.lanes[0].size() > 1) {
    return one_f_one_b_order(inputs);  // no other lane to run ahead of
  }
  std::vector<int> warm_up = stages_that_follow(inputs.stages);
  for (int& slots : warm_up) {
    slots = 2 * slots + 1;  // 2 × (stages from this one to the loss) - 1
  }
  return turn_order(inputs, warm_up, std::vector<int>(warm_up.size(), 0));
}

}  // namespace entrain
