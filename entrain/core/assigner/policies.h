// The policies' functions; assigner.cc holds the registry.
#pragma once

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/placement.h"

namespace entrain {

// Places the request's samples.
//
// Requires  a request that assign() has checked: at least one sample per replica.
using Policy = Placement (*)(const AssignRequest& request);

// Drawn order, in even runs to replicas and to slots: what a plain data loader does.
Placement sequential_policy(const AssignRequest& request);

// A random order of (seed, step), then as `sequential`.
Placement random_policy(const AssignRequest& request);

// Longest first by the larger of both normalised works: each sample to the replica, then to the
// slot, whose larger normalised load stays least. Whole samples, the plan's number of slots.
Placement lpt_2d_policy(const AssignRequest& request);

// Ours: slots of shaped size, their number chosen by simulated step time, then a local search that
// also defers. See entrain.cc.
Placement entrain_policy(const AssignRequest& request);

}  // namespace entrain
