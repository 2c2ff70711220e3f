// Why no plan of a cluster fits in memory, and what would fit.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/planner/plan_candidate.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {

// Names the module and lane that lack bytes under the nearest number of replicas, the missing
// bytes, and what would fit: devices of so many bytes, or more devices per replica. If
// every module fits separately, one of `no_fit` says why it did not (of those that miss a
// further batch the one that lacks least), or that there are too few devices for a lane each.
//
// Requires  nothing fits.
// Cost      O(shapes × layers² × stages).
std::string memory_reason(const PlanScorer& scorer,
                          const PlanSearchRequest& request,
                          const std::vector<PlanCandidate>& no_fit);

}  // namespace entrain
