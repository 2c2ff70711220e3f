// The policy `entrain` under Objective::kBalance: slots of equal forward time in every module, the
// paper's measure. Step time is the goal and balance only a means: see entrain.cc.
#pragma once

#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Makes the variation (standard deviation / mean) of forward time over all slots of all replicas
// small in every module at once, with exactly the plan's num_slots per replica (some may be empty).
//
// 1. Level of a module: the load of all slots except those that one oversized unit fills beyond it,
//    with the rest spread evenly; a unit counts at most the level, since an oversized unit takes
//    one slot of its replica whatever its load.
// 2. Samples to replicas of equal counted work in every module (balance_replicas.h).
// 3. In each replica segments and LLM work to slots, each module separately within what deferral
//    allows (balance_slots.h).
//
// Ensures  segments and LLM work are placed singly: a segment's slot is at most its sample's LLM
//          slot, within limits.max_deferral; a pure function of the request's plan and costs.
// Does not look at bytes, at the schedule, at launch constants and at EntrainOptions.
// It cannot promise the least variation; ModuleBalance::floor_cv says how far the slots of
// each replica can be from it.
// Cost     up to 20 million swaps for the replicas, 12 million combinations a replica for the
//          slots: about a second for 512 samples and 4 replicas.
Placement balance_objective(const AssignRequest& request);

}  // namespace entrain
