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
// excluded. If nothing fits: the reason. `hint`: lines after the first ones; may be empty.
//
// Requires  `result` is search_plans(request).
std::string plan_page(const PlanSearchResult& result,
                      const PlanSearchRequest& request,
                      const std::string& hint = "");

// A plan behind the best.
struct RunnerUp {
  const PlanCandidate* plan = nullptr;  // of the result
  double ratio = 1;  // its step time over the best plan's, on the batches that it has run; of one
                     // that was stopped: at least
};

// All plans behind the best that were simulated, in full or in part, fastest first.
// Requires  result.fits(); the result outlives what is returned.
std::vector<RunnerUp> ranked(const PlanSearchResult& result);
// "on 3 of 8 batches, then set aside: not proven".
std::string how_far(const RunnerUp& other, const PlanSearchResult& result);

// Whether the best plan is proven to be that, and what the budget left if not.
std::string proof_of(const PlanSearchResult& result);

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
