// The plans that DFLOP and OrchMLLM would make of a cluster, as far as this engine can run them.
// Baselines for studies; search_plans() decides by simulation. Sources: our notes of both papers
// and of DFLOP's code.
#pragma once

#include "entrain/core/planner/proportional_plan.h"

namespace entrain {

// DFLOP's: modules on devices of their own; of every number of replicas, tensor-parallel degree
// and number of stages of each module that fits the memory of its largest samples, the one of least
// T = (K + P - 1) · max τ, P = lanes, τ = mean time of a slot on a lane, K = slots of a replica by
// request.space.microbatches. Among those of T within 10 % of the least the fewest slots win, then
// the least T.
//
// Ours, not DFLOP's: all modules have the same number of replicas; layers are cut where the slowest
// stage is fastest instead of evenly, and τ is of the slowest stage; microbatches are given, where
// DFLOP takes the largest that keeps mean shapes within those it has measured; memory is state and
// the largest unit (PlanBounds). No context parallelism.
//
// Ensures   no recomputed layers, no virtual stages; result.reason as of proportional_plan().
// Throws    as search_plans() does.
// Cost      a walk through the space; no simulation.
// Source    DFLOP (arXiv 2603.25120), its data-aware optimizer.
FormulaPlan dflop_plan(const PlanSearchRequest& request);

// OrchMLLM's: every device runs all modules and there is no pipeline, so that each phase is
// data-parallel over the same devices: one lane a replica, and as many replicas as memory and the
// global batch allow.
//
// Where the state does not fit one device, a replica takes the fewest devices on which it does: as
// one lane by tensor parallelism if a degree fits, else as the fewest lanes, each with a stage of
// every module. Of equal ones the least T of dflop_plan() wins. Ours, not OrchMLLM's: that rule,
// and that request.state says what of the state is sharded (the study shards the optimizer's, since
// models as large as OrchMLLM's fit no device otherwise). The policy `orchmllm` keeps a sample in
// one replica, so that phases which disagree are not balanced apart.
//
// Ensures, throws, cost   as dflop_plan().
// Source    OrchMLLM (arXiv 2503.23830). Our notes name no planner of its own.
FormulaPlan orchmllm_plan(const PlanSearchRequest& request);

}  // namespace entrain
