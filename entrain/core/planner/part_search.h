// The search of one part of the space of plans: of the configurations with the same features.
//
// Read first: search_part(). Every configuration is bounded from below, the lowest bounds are held,
// some of them are guessed, and those that may still be among the first are simulated in that order
// until the part's budget is spent. plan_search.h has the whole.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/planner/plan_candidate.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {

// What a part tells the one that adds shared lanes to it. A larger budget must not find less: the
// first one does not depend on it, and of the others a larger one makes more of the second part.
struct PartFigures {
  std::vector<std::int64_t> first_steps;  // of the first plan that fitted
  std::int64_t threshold_ns = kNoStop;
  std::int64_t best_ns = kNoStop;  // of the best plan
  bool fits = false;
  bool proven = false;
};

// What a part of the space came to.
struct PartResult {
  PlanSearchResult found;             // its lists and lower bound
  std::vector<std::int64_t> left_ns;  // bounds of what the budget left undecided
  PartFigures figures;
};

// Searches the configurations with these features, in a budget of its own; again where further
// batches refuse its best plan, until the best one fits them all or is no faster than `to_beat`.
//
// Shapes    to_beat: nanoseconds over all batches, the best of other parts; kNoStop: none.
// Requires  scorer is of this request; beside: null, or the figures of the part to which this one
//           adds shared lanes.
// Ensures   the best plan of found, if faster than to_beat, fits the further batches.
// Throws    as PlanScorer's functions.
// Cost      as search_plans(), for the configurations of the part.
PartResult search_part(const PlanSearchRequest& request,
                       PlanScorer& scorer,
                       unsigned features,
                       const PartFigures* beside,
                       std::int64_t to_beat);

}  // namespace entrain
