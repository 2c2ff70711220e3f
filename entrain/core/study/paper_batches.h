// What batches of each size look like to a planner: the splits that they ask for, and their ratio
// of encoder to LLM work.
#pragma once

#include "entrain/core/base/json.h"
#include "entrain/core/planner/work_times.h"

namespace entrain {

// The certificate of `devices` (find_stable_batch()), the splits of drawn batches of 1 to
// `global_batch` samples, and how many of 1,000 fresh batches of b_min samples, drawn with other
// seeds, do not ask for the data set's own split.
//
// Shapes  work: [module][sample].
// Cost    that of find_stable_batch(), and as many draws again.
Json batch_splits(const WorkTimes& work, int devices, int global_batch);

// Of 200 batches of each size the 5th percentile, the median and the 95th, and the ratio of all.
Json ratios_by_size(const WorkTimes& work);

}  // namespace entrain
