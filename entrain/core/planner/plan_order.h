// Which configurations of a part of the space are looked at first: those that are guessed before
// any is simulated, and those near the best plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

// A configuration that a search holds.
struct PlanEntry {
  std::int64_t bound_ns = 0;     // over all batches
  std::int64_t estimate_ns = 0;  // likewise
  std::int64_t number = 0;       // in the order of the space
  PlanShape config;
  std::int64_t guess_ns = kNoStop;  // PlanScorer::guess(), of those that are guessed
};

struct GuessLimits {
  // Whether guesses alone decide what is simulated: a few configurations of shared lanes.
  bool guided = false;
  // Larger batches may take more: 2 times from 2,048 samples on, 4 times from 8,192.
  std::int64_t size_scale = 1;
};

// Numbers of entries.
struct GuessChoice {
  std::set<std::int64_t> first;
  std::set<std::int64_t> scouts;  // none of them in `first`
};

// First: the first by estimate, as long as they count no more units on stages (plan_units.h) than
// the limits allow, the first of each other number of replicas that counts no more, and all of one
// lane. Estimates favour few replicas of many lanes, which deal worst with uneven samples.
//
// Scouts: of each other kind the first by estimate, if it counts no more than a sixteenth of those
// units, as long as all of them count no more than two thirds; then of kinds left over likewise,
// up to an eighth each and all units for all of them. A kind has the same replicas, layout and
// degrees; its other numbers of lanes a search finds by itself. None where guided.
//
// Shapes  by_estimate: entries by rising estimate; units_of: PlanScorer::guess_units().
// Cost    one call of units_of() for each entry that may be guessed first, up to two for a kind.
GuessChoice choose_guesses(const std::vector<PlanEntry>& by_estimate,
                           const std::function<std::int64_t(const PlanShape&)>& units_of,
                           const GuessLimits& limits);

// Entries that were not judged and differ from the best plan in the replicas, the shape of one
// module or in where lanes went: what is scaled from it or goes on twice as far from the best plan
// before it, then the nearest in lanes, then as the order of entries has them; four at most. Only
// what comes first under a budget hangs on it.
//
// Shapes  judged: [entry], 0 or 1; result: indices. before: without modules if there was none.
// Cost    O(entries × modules).
std::vector<std::size_t> near_plan(const std::vector<PlanEntry>& entries,
                                   const std::vector<char>& judged,
                                   const PlanShape& best,
                                   const PlanShape& before);

}  // namespace entrain
