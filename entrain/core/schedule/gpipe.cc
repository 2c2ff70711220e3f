#include "entrain/core/schedule/turns.h"

namespace entrain {

LaneOrders gpipe_order(const OrderInputs& inputs) {
  // Every stage warms up with all slots, so the turns are backwards only.
  const auto num_stages = static_cast<std::size_t>(inputs.table.num_all_stages());
  return turn_order(inputs, std::vector<int>(num_stages, inputs.table.num_slots()));
}

}  // namespace entrain
