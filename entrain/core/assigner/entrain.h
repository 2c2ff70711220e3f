// The policy `entrain`.
#pragma once

#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Ours: slots of shaped size, their number chosen by simulated step time, then a local search that
// also defers. See entrain.cc.
Placement entrain_policy(const AssignRequest& request);

}  // namespace entrain
