// From slots to groups: which parts of an encoder slot run as one autograd graph.
//
// Read first: build_groups(). The rule, for every encoder slot on its own:
// - its items are sorted by the LLM slot of their sample (stable: packing order within a part);
//   items of one LLM slot are a part;
// - an encoder without anything trainable takes no backward, so nothing is gained by separate
//   graphs: all parts form one group;
// - otherwise parts are taken in rising order of LLM slot. A group is *tiny* when its forward and
//   backward time over all stages, launch constants left out, is below the module's launch
//   constants for one forward and backward on every stage: a launch of its own would cost more
//   than its work. A tiny group takes in the next part (which delays its own small backward, not
//   that of others). A tiny group that comes last joins the group before it when that one's last
//   LLM slot is just one earlier, and stays alone when it is not.
// An LLM slot is one group. Empty slots have none.
#pragma once

#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/program.h"

namespace entrain {

using ModuleGroups = std::vector<std::vector<Group>>;  // [slot][group]

// Groups of one replica with `takes_backward` filled: an encoder's from its trainable stages, an
// LLM slot's from the LLM's trainable stages and from features of encoders with anything trainable
// in this very slot.
//
// Shapes    result: [module][slot][group].
// Requires  a valid assignment without chunks.
// Throws    InvalidInput for a chunk, InternalError for a segment whose sample has no LLM slot at
//           or after it.
// Cost      O(items × log(items of a slot) + groups × stages).
std::vector<ModuleGroups> build_groups(const ReplicaAssignment& replica, const StepCosts& costs);

}  // namespace entrain
