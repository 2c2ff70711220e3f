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

#include "entrain/core/planner/plan_candidate.h"

namespace entrain {

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
