// Plans of several stages a lane, as hand-made cases.
#pragma once

#include <vector>

#include "entrain/core/planner/layer_times.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain::oracle {

// Virtual stages: module m has `lanes[m]` lanes of its own and lanes[m] · chunks[m] stages, stage i
// on the module's lane i mod lanes[m]. The plan's schedule is `interleaved`.
//
// Shapes    layer_ns: every layer of the model; lanes, chunks: [module].
// Throws    as shaped_plan(), and for other numbers of modules.
Plan interleaved_plan(const ModelSpec& model,
                      const LayerTimes& layer_ns,
                      const std::vector<int>& lanes,
                      const std::vector<int>& chunks,
                      int replicas,
                      int num_slots);

// All modules on all lanes: lane s hosts stage s of every module. The plan's schedule is `dip`.
//
// Throws    as shaped_plan().
Plan colocated_plan(
    const ModelSpec& model, const LayerTimes& layer_ns, int lanes, int replicas, int num_slots);

}  // namespace entrain::oracle
