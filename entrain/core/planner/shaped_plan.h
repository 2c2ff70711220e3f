// The plan of a shape: whose layers run on which lanes.
#pragma once

#include <vector>

#include "entrain/core/planner/layer_times.h"
#include "entrain/core/planner/plan_shape.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// The plan of a shape; each module's layers are cut by wrapped_partition().
//
// Shapes    layer_ns: every layer of the model.
// Throws    InvalidInput for counts below 1 and more stages than layers.
// Cost      that of wrapped_partition().
Plan shaped_plan(const ModelSpec& model, const LayerTimes& layer_ns, const PlanShape& shape);

}  // namespace entrain
