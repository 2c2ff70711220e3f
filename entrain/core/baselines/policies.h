// Other published policies and simple ones, with which `entrain` is compared. Each file names its
// source at the top. assigner.cc holds the registry.
#pragma once

#include <cstdint>

#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Places the request's samples.
//
// Requires  a request checked by assign(): at least one sample per replica.
using Policy = Placement (*)(const AssignRequest& request);

// Drawn order, in even runs to replicas and to slots, as in a plain data loader.
Placement sequential_policy(const AssignRequest& request);

// A random order of (seed, step), then as `sequential`.
Placement random_policy(const AssignRequest& request);

// Longest first by the larger of both normalised works: each sample to the replica, then to the
// slot, whose larger normalised load stays least. Whole samples, the plan's number of slots.
Placement lpt_2d_policy(const AssignRequest& request);
// The same with so many slots a replica. `loads`: batch_loads() of the request.
Placement lpt_2d_bins(const AssignRequest& request, const BatchLoads& loads, int num_slots);

// First-fit by LLM tokens with the smallest capacity for which the plan's slots suffice. See
// packed.cc.
Placement packed_policy(const AssignRequest& request);

// Longest first by encoder work only, replicas then slots. See lpt_placement().
Placement encoder_lpt_policy(const AssignRequest& request);

// Longest first by LLM work only, replicas then slots. See lpt_placement().
Placement llm_lpt_policy(const AssignRequest& request);

// DistTrain: replicas by encoder work, four samples per microbatch, microbatches reordered. See
// disttrain.cc.
Placement disttrain_policy(const AssignRequest& request);

// DFLOP: bins with the smallest largest load on any module's heaviest lane. See dflop.cc.
Placement dflop_policy(const AssignRequest& request);
// The same, with loads of batch_loads(), with at most so many slots a replica and exchanges between
// bins, of which the policy makes kDflopExchanges; some nanoseconds each.
inline constexpr std::int64_t kDflopExchanges = 4'000'000;
Placement dflop_bins(const AssignRequest& request,
                     const BatchLoads& loads,
                     int most_slots,
                     std::int64_t exchanges);

// OrchMLLM without its exchange: replicas balanced on the sum of all phases. See orchmllm.cc.
Placement orchmllm_policy(const AssignRequest& request);

// Algorithm 3 of the Entrain paper: encoder first, then deferral by one slot. See entrain_paper.cc.
Placement entrain_paper_policy(const AssignRequest& request);

}  // namespace entrain
