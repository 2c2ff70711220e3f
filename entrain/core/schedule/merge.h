// From one order per stage to one order per lane, where lanes host several stages.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/schedule/order.h"

namespace entrain {

// Which of several operations that can start at the same time on a lane runs.
enum class MergeRule : std::uint8_t {
  kUrgent,     // backward (input half) before forward before weight half
  kAlternate,  // the same after a forward; a forward first after a backward
};

// Replays the lists on integer costs: of all lists whose next operation has its inputs, the one
// that can start first runs (ties: by rule, then the later list, which is nearer to the loss), and
// its lane is busy until it has finished. Transfers take no time here. The lanes' orders are cuts
// of one sequence that respects every dependency, hence free of cycles; how good they are beyond
// that depends on the lists.
//
// Shapes    lists: [list][position], each of compute operations of one stage; by rising stage
//           number; one list a stage, or several that may overtake each other.
// Requires  lists that have no cycle together with the dependencies between stages.
// Throws    InternalError when they have one.
// Cost      O(operations × (lanes + lists of a lane)).
LaneOrders merge_stage_orders(const OrderInputs& inputs,
                              const std::vector<std::vector<Operation>>& lists,
                              MergeRule rule = MergeRule::kUrgent);

}  // namespace entrain
