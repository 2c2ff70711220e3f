// DistTrain's method in a study: the plan of a single sample, averaged over draws.
#pragma once

#include <vector>

#include "entrain/core/study/cases.h"

namespace entrain {

// Runs the cases under the plans of single_sample_plan() for the first `draws` samples of step 0,
// each distinct plan once.
//
// Ensures   step and bound are means over the draws; every other figure is that of the plan that
//           most draws give (the first of equals). Policies are named `<policy> (own plans)`.
// Requires  a study with a model and a profile, 1 <= draws <= the global batch;
//           request.plan gives lanes, degrees, replicas, slots and limits; if it recomputes
//           layers, these plans recompute all.
// Throws    InvalidInput as single_sample_plan(), and for a study of given costs.
std::vector<CaseResult> run_one_sample_cases(const CasesRequest& request, int draws);

}  // namespace entrain
