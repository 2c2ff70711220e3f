// Heavy samples cut into chunks, before the search.
#pragma once

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"

namespace entrain {

// With `all_at_once`, in every replica all samples above a share of a mean slot, with slots
// inserted for their pieces, for a few shares; then the heaviest sample of the slowest replica, in
// slots that exist, as long as that helps and evaluator.evaluations() is below `budget`. Whole
// samples of slow replicas then move to those that the cuts made faster.
//
// Requires  chunks that the plan allows.
// Ensures   the slowest replica gets no worse, and none leaves the limits.
void cut_heavy_samples(const AssignRequest& request,
                       const BatchLoads& loads,
                       StepEvaluator& evaluator,
                       int budget,
                       bool all_at_once,
                       Evaluated& best);

}  // namespace entrain
