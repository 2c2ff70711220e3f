// Work of all samples of a study: what the stable batch size and the regions of a plan are read
// from.
#pragma once

#include "entrain/core/planner/stable_batch.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/study/study.h"

namespace entrain {

// Every sample's work in every module, by the study's costs at tensor parallelism 1. Shows
// progress on standard error.
//
// Throws  as batch_costs() does; InvalidInput when a sample's size is impossible.
// Cost    O(units × layers) time, memory for a few samples at a time.
WorkTimes study_work(const Study& study);

// find_stable_batch() with progress on standard error.
StableBatchResult find_study_batch(StableBatchRequest request);

}  // namespace entrain
