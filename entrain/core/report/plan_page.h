// A found plan as a readable page.
//
// Read first: plan_page().
#pragma once

#include <string>
#include <vector>

#include "entrain/core/planner/dynamic_regret.h"
#include "entrain/core/planner/plan_neighbours.h"
#include "entrain/core/planner/plan_search.h"

namespace entrain {

// The plan in a sentence; its lanes, one per row, with module, layers, devices, share of the
// slowest lane's work and memory; the certificate; runners-up with their margins; what each bound
// excluded. If nothing fits: the reason.
//
// Requires  `result` is search_plans(request).
std::string plan_page(const PlanSearchResult& result, const PlanSearchRequest& request);

// "2 replicas of …, 12 layers recomputed, sharded optimizer".
std::string describe(const PlanCandidate& candidate, const ModelSpec& model);

// Replicas, slots and schedule, and the lanes of one replica with stages, layers and devices.
std::string lanes_page(const Plan& plan);

// The regret in a sentence or two.
std::string regret_page(const DynamicRegret& regret);

// Why not the neighbours, one per row: the change, its simulated time relative to the plan's and
// its bound, or why it is not a valid plan.
//
// Requires  `best` is a plan of the request's search.
std::string neighbours_page(const std::vector<PlanNeighbour>& neighbours,
                            const PlanCandidate& best,
                            const PlanSearchRequest& request);

}  // namespace entrain
