#include "entrain/core/schedule/turns.h"

namespace entrain {

LaneOrders one_f_one_b_order(const OrderInputs& inputs) {
  const UnitTable& table = inputs.table;
  const int llm = table.llm_module();
  std::vector<int> warm_up;
  for (int module = 0; module <= llm; ++module) {
    const int after_module = module == llm ? 0 : table.num_stages(llm);
    for (int stage = 0; stage < table.num_stages(module); ++stage) {
      warm_up.push_back(table.num_stages(module) + after_module - stage - 1);
    }
  }
  return turn_order(inputs, warm_up);
}

}  // namespace entrain
