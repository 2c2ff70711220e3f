// Plans whose lanes host several stages, for the schedules `interleaved` and `dip`.
#pragma once

#include <vector>

#include "entrain/core/planner/layer_times.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Virtual stages: module m has `lanes[m]` separate lanes and lanes[m] · chunks[m] stages, stage i
// on the module's lane i mod lanes[m]; each module's layers are cut so that its slowest stage is
// fastest. The plan's schedule is `interleaved`.
//
// Shapes    layer_ns: every layer of the model; lanes, chunks: [module].
// Throws    InvalidInput for counts below 1, more stages than layers, other numbers of modules.
// Cost      that of min_max_partition().
Plan interleaved_plan(const ModelSpec& model,
                      const LayerTimes& layer_ns,
                      const std::vector<int>& lanes,
                      const std::vector<int>& chunks,
                      int replicas,
                      int num_slots);

// All modules on all lanes: lane s hosts stage s of every module, each module's layers cut where
// its slowest stage is fastest. The plan's schedule is `dip`.
//
// Throws    InvalidInput for fewer layers than lanes in a module, counts below 1.
// Cost      that of min_max_partition().
Plan colocated_plan(
    const ModelSpec& model, const LayerTimes& layer_ns, int lanes, int replicas, int num_slots);

}  // namespace entrain
