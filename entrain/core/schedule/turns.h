// Orders made of a warm-up and turns: what `gpipe`, `1f1b`, `zb-h1` and `zb-h2` share.
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
// With weight delays, backwards of stages with has_both_halves() are split on lanes that wait for
// other lanes (never on a lane of all stages): the backwards of a turn become input halves, and the
// weight halves of turn t stand at the end of turn t + delay, in the order of their input halves;
// those whose turn would come after the last turn stand at the end. A stage with warm-up w and
// delay d thus never holds more than what a stage with warm-up w + d and whole backwards holds.
//
// Shapes  warm_up: [stage number], >= 0;
//         weight_delay: likewise, in turns; empty: backwards stay whole.
LaneOrders turn_order(const OrderInputs& inputs,
                      const std::vector<int>& warm_up,
                      const std::vector<int>& weight_delay = {});

// The order of every stage on its own, as it would be on a lane of one stage.
// Shapes  result: [stage number][position].
std::vector<std::vector<Operation>> stage_turn_orders(const OrderInputs& inputs,
                                                      const std::vector<int>& warm_up,
                                                      const std::vector<int>& weight_delay = {});

// How many stages follow each stage on the way to the loss: the warm-up of `1f1b`.
// Shapes  result: [stage number].
std::vector<int> stages_that_follow(const StageGraph& stages);

// Whether the stage's backward can be split: it has weight gradients to compute, and an input
// gradient, if only from layer to layer within the stage. Autograd does one half only for a frozen
// stage and for a stage whose first layer alone is trainable; there a backward stays whole, which
// is that half.
// Cost    O(units).
bool has_both_halves(const StageCosts& stage);

}  // namespace entrain
