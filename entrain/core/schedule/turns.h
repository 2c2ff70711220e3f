// Orders made of a warm-up and turns: what `gpipe` and `1f1b` share.
#pragma once

#include <vector>

#include "entrain/core/schedule/order.h"

namespace entrain {

// A stage with warm-up w runs the forwards of slots 0 … w-1; then turn t = 0, 1, … runs the forward
// of slot t + w, if there is one, and every backward that LLM slot t releases: on LLM stages that
// of the slot's own group and, in falling slot order, of groups with earlier chunks of samples that
// end in slot t; on encoder stages those of all groups whose last LLM group is released in turn t,
// in the order in which their gradients are completed.
//
// - A lane of one stage runs that order.
// - A lane of all stages takes the LLM's last stage's warm-up and runs whole slots: "forward of
//   slot t" is every encoder group that LLM slot t is the first to need, through all its stages,
//   then the LLM; "backward" is the LLM's, then that of the released groups.
// - Lanes of some stages: merge_stage_orders().
//
// No cycle: deferral moves no backward before its forward (parts k→t have k <= t), nor does a later
// turn for the backward of chunks, all stages run a turn's backwards in one order, and with
// warm_up(stage) >= warm_up(next stage) + 1, or all equal to num_slots, every stage runs the
// forward that its follower needs in turn t no later than its own turn t - 1.
//
// Shapes  warm_up: [stages of all modules, in UnitTable::stage_number order], >= 0.
LaneOrders turn_order(const OrderInputs& inputs, const std::vector<int>& warm_up);

}  // namespace entrain
