// The search for the one static plan of a cluster.
//
// Read first: search_plans(). The space is searched in parts (PlanFeature), each with a budget of
// its own. Every configuration of the cluster is bounded from below; those whose
// bound is under the best time found are simulated on several drawn global batches with the policy
// and the schedule of the run. A plan that is far behind the best ones after some batches is set
// aside until all others are done: the budget goes to those that may win. Only a proven bound
// drops a configuration, so the best is never lost; if a budget ends the
// search early, the result says so, with a bound of the remaining configurations.
// The best plan must also fit in memory on further batches (memory_check.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/planner/plan_bound.h"
#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

// The budget of each part of a search without most_simulations: this many simulated steps, and
// fewer if they take long, counted in units on stages (plan_units.h).
inline constexpr int kMostSimulations = 28;
inline constexpr int kLeastSimulations = 8;
inline constexpr std::int64_t kMostUnitStages = 700'000;

// Steps of a search without most_simulations, if none takes long.
inline int default_budget(int patience) {
  return patience * kMostSimulations;
}

// Configurations excluded by a bound, without simulation.
struct CutSummary {
  BoundCause cause = BoundCause::kWork;
  int module = -1;              // kWork, kMemory: excluded by this module, in `count` of its shapes
  std::int64_t count = 0;       // shapes (replicas, degrees, stages) of a module, or configurations
  std::int64_t nearest_ns = 0;  // the least mean bound among them; 0 for kMemory
  std::string nearest;          // its description; for kMemory the one that misses least bytes
};

struct PlanSearchResult {
  std::vector<PlanCandidate> plans;    // simulated ones by mean; of equals the first in the space
  std::vector<PlanCandidate> stopped;  // by their lower bound of the mean
  // Set aside when the budget ended, by their time relative to the best plan's on the same batches.
  std::vector<PlanCandidate> set_aside;
  std::vector<PlanCandidate> no_fit;
  std::vector<CutSummary> cuts;
  std::int64_t shapes = 0;          // replicas × degrees × stages, over all modules
  std::int64_t configurations = 0;  // listed: no single module excluded them
  std::int64_t lower_bound_ns = 0;  // lower bound of the mean step time over all plans of the space
  int simulated_steps = 0;
  // Whether everything not simulated is proven no faster than the plans listed first
  // (the best and request.runners_up after it).
  bool complete = true;
  std::int64_t left = 0;           // configurations left undecided by the budget
  std::int64_t left_bound_ns = 0;  // the least mean bound among them
  // The gain of re-planning for every single one of the batches at no cost of switching,
  // among the plans that were simulated: mean of the best plan / mean of each batch's best - 1.
  double dynamic_regret = 0;
  // Number of further batches that the best plan fits; plans after it were checked on a few of
  // them at most.
  int further_batches = 0;
  // Why nothing fits: which module on which lane lacks how many bytes, and what would do.
  std::string reason;

  [[nodiscard]] bool fits() const { return !plans.empty(); }
  // Requires  fits().
  [[nodiscard]] const PlanCandidate& best() const { return plans.front(); }
};

// The policy `entrain` chooses its own number of slots, so that of request.space.microbatches it
// takes the first alone; with other policies every one makes a configuration of its own.
//
// A plan that is to become the best is looked at on the further batches that broke others before it
// and on the most demanding ones; the best of all on all of them. Where that says no, the search
// starts again with a look at all of them for every plan that is to become the best, so that the
// next best fits.
//
// Ensures   a pure function of the request (`progress` and `threads` apart). A larger budget never
//           makes the best plan slower, nor do context parallelism, virtual stages, idle devices
//           and shared lanes where none was allowed, unless further batches refuse plans.
//           result.plans holds the best of the space by mean simulated step time, if complete; no
//           plan's mean is under lower_bound_ns. The best plan fits `batches`, and
//           result.further_batches of the further ones: all of them unless they may stop. Nothing
//           is proven of any other batch.
// Throws    InvalidInput for no batch, batches of different sizes, an unknown policy or schedule,
//           and as PlanSpace, cluster_degrees() and step_costs() do.
// Cost      bounds for every configuration (about 0.2 us each), then one assignment and replay for
//           every batch of every survivor; memory_miss() for the further batches of some. Simulated
//           steps are not repeated where it starts again. O(most_candidates + one batch's costs)
//           memory.
PlanSearchResult search_plans(const PlanSearchRequest& request);

}  // namespace entrain
