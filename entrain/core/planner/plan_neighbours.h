// Why not a neighbour: the effect of changing one thing about a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrain/core/planner/plan_bound.h"
#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

struct PlanNeighbour {
  PlanShape config;
  std::string change;                      // "a stage of vision to llm"
  PlanBound bound;                         // a sum over the batches
  std::optional<PlanCandidate> candidate;  // simulated; none if memory excludes every cut
  std::string reason;                      // why it is not a plan; empty if it is one

  [[nodiscard]] bool fits() const { return reason.empty(); }
};

// Neighbours within the space of the request: lanes of one module given to another for as many
// devices; another tensor or context parallelism of a module, or both at equal devices a lane, on
// as many devices in all; twice or half the replicas, with stages or tensor parallelism changed to
// match; encoders, or all modules, on shared lanes or on lanes of their own. Each is simulated on
// every batch, whatever its bound.
//
// best_total_ns  of the configuration's own steps: a plan as fast must fit the request's further
//                batches too.
// Ensures   plans first, by mean simulated time; a pure function of its arguments.
// Throws    as search_plans() does.
// Cost      one simulation per neighbour and batch, about ten to thirty neighbours.
std::vector<PlanNeighbour> judge_neighbours(const PlanSearchRequest& request,
                                            const PlanShape& config,
                                            std::int64_t best_total_ns = 0);

}  // namespace entrain
