#include "entrain/core/schedule/turns.h"

namespace entrain {

LaneOrders one_f_one_b_order(const OrderInputs& inputs) {
  return turn_order(inputs, stages_that_follow(inputs.stages));
}

}  // namespace entrain
