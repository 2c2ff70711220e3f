// Everybody else's policies, and the simple ones: what `entrain` is compared with. Each file is
// headed by its source. assigner.cc holds the registry.
#pragma once

#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Places the request's samples.
//
// Requires  a request that assign() has checked: at least one sample per replica.
using Policy = Placement (*)(const AssignRequest& request);

// Drawn order, in even runs to replicas and to slots: what a plain data loader does.
Placement sequential_policy(const AssignRequest& request);

// A random order of (seed, step), then as `sequential`.
Placement random_policy(const AssignRequest& request);

// Drawn order, dealt in even runs to replicas, one sample a slot: the fewest bytes in flight.
Placement one_sample_a_slot(const AssignRequest& request);

// Longest first by the larger of both normalised works: each sample to the replica, then to the
// slot, whose larger normalised load stays least. Whole samples, the plan's number of slots.
Placement lpt_2d_policy(const AssignRequest& request);

// First-fit by LLM tokens under the least capacity at which the plan's slots suffice. See
// packed.cc.
Placement packed_policy(const AssignRequest& request);

// Longest first by encoder work alone, replicas then slots. See lpt_placement().
Placement encoder_lpt_policy(const AssignRequest& request);

// Longest first by LLM work alone, replicas then slots. See lpt_placement().
Placement llm_lpt_policy(const AssignRequest& request);

// DistTrain: replicas by encoder work, four samples a microbatch, microbatches reordered. See
// disttrain.cc.
Placement disttrain_policy(const AssignRequest& request);

// DFLOP: bins whose largest load on any module's heaviest lane is least. See dflop.cc.
Placement dflop_policy(const AssignRequest& request);

// OrchMLLM without its exchange: replicas balanced on the sum of all phases. See orchmllm.cc.
Placement orchmllm_policy(const AssignRequest& request);

// Algorithm 3 of the Entrain paper: encoder first, then deferral by one slot. See entrain_paper.cc.
Placement entrain_paper_policy(const AssignRequest& request);

}  // namespace entrain
