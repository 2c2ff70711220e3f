#include "entrain/core/schedule/turns.h"

namespace entrain {

LaneOrders gpipe_order(const OrderInputs& inputs) {
  // Every stage warms up with all slots, so the turns are backwards only.
  return turn_order(inputs, std::vector<int>(inputs.stages.stages.size(), inputs.graph.num_slots));
}

}  // namespace entrain
