// From one order per stage to one order per lane, where lanes host several stages.
#pragma once

#include <vector>

#include "entrain/core/schedule/order.h"

namespace entrain {

// Replays the stages on integer costs: of all stages whose next operation has its inputs, the one
// that can start first runs (ties: backward first, then the higher stage number, which is nearer to
// the loss), and its lane is busy until it has finished. Transfers take no time here. The lanes'
// orders are cuts of one sequence that respects every dependency, hence free of cycles; how good
// they are beyond that depends on the stages' orders.
//
// Shapes    stages: [stage number][position], compute operations of that stage only.
// Requires  stage orders that have no cycle together with the dependencies between stages.
// Throws    InternalError when they have one.
// Cost      O(operations × stages).
LaneOrders merge_stage_orders(const OrderInputs& inputs,
                              const std::vector<std::vector<Operation>>& stages);

}  // namespace entrain
