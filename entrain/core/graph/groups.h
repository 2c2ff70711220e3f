// From slots to groups: which parts of an encoder slot run as one autograd graph.
//
// Read first: build_groups(). The rule, for every encoder slot on its own:
// - its items are sorted by the LLM group that takes them, by slot and index (stable: packing order
//   within a part); items of one LLM group are a part. Without chunks an LLM slot is one group;
// - parts are taken in this order. A group is *tiny* when its forward and backward time over all
//   stages, without launch constants, is below the module's launch constants for one forward and
//   backward on every stage: a separate launch would cost more than its work. A part is *released*
//   by the slot in which the samples of its LLM group end, without chunks that LLM slot. A tiny
//   group absorbs the next part if that is not released before it (which delays its own small
//   backward, not that of others). A tiny group that comes last joins the previous group if it is
//   released at most one slot later, and otherwise stays separate;
// - an encoder without anything trainable is grouped likewise: it has no backward, but the LLM need
//   not wait for the forward of parts that later slots take.
// The groups of an LLM slot: llm_groups.h. Empty slots have none.
#pragma once

#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/llm_groups.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// Groups of one replica with `takes_backward` filled: an encoder's from its trainable stages, an
// LLM group's from the LLM's trainable stages, from features of encoders with anything trainable
// that it takes, and from groups with earlier chunks that take part in backward (its loss reaches
// them through their keys and values).
//
// Shapes    result: [module][slot][group].
// Requires  a valid assignment.
// Throws    InternalError for a segment whose sample has no LLM slot at or after it.
// Cost      O(items × log(items of a slot) + groups × stages).
std::vector<ModuleGroups> build_groups(const ReplicaAssignment& replica, const StepCosts& costs);

}  // namespace entrain
