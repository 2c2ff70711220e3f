#include <algorithm>
#include <vector>

#include "entrain/core/schedule/turns.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Per module, the most slots that a stage on a way through it holds under `1f1b`: those of the
// stage furthest from the loss that takes part in backward. 0 where none does.
std::vector<int> most_slots(const UnitTable& table, const std::vector<int>& following) {
  const int llm = table.llm_module();
  std::vector<int> result(at(table.num_modules()), 0);
  for (const GroupEntry& entry : table.groups()) {
    if (entry.first_backward_stage < table.num_stages(entry.module)) {
      const int number = table.stage_number(entry.module, entry.first_backward_stage);
      result[at(entry.module)] = std::max(result[at(entry.module)], following[at(number)] + 1);
    }
  }
  result[at(llm)] = *std::max_element(result.begin(), result.end());
  return result;
}

}  // namespace

LaneOrders zb_h1_order(const OrderInputs& inputs) {
  const UnitTable& table = inputs.table;
  const std::vector<int> warm_up = stages_that_follow(table);
  const std::vector<int> slots = most_slots(table, warm_up);
  std::vector<int> delay;
  for (int module = 0; module < table.num_modules(); ++module) {
    for (int stage = 0; stage < table.num_stages(module); ++stage) {
      const int own = warm_up[at(table.stage_number(module, stage))] + 1;
      delay.push_back(std::max(0, slots[at(module)] - own));
    }
  }
  return turn_order(inputs, warm_up, delay);
}

LaneOrders zb_h2_order(const OrderInputs& inputs) {
  if (inputs.plan.lanes.size() == 1 && inputs.plan.lanes[0].size() > 1) {
    return one_f_one_b_order(inputs);  // no other lane to run ahead of
  }
  std::vector<int> warm_up = stages_that_follow(inputs.table);
  for (int& slots : warm_up) {
    slots = 2 * slots + 1;  // 2 × (stages from this one to the loss) - 1
  }
  return turn_order(inputs, warm_up, std::vector<int>(warm_up.size(), 0));
}

}  // namespace entrain
