// Costs of every layer of a model for a batch of samples, for cutting layers into stages.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

using LayerTimes = std::vector<std::vector<std::int64_t>>;  // [module][layer] nanoseconds

// A plan of one replica in which every layer is a stage on a separate lane, at tensor parallelism
// 1: its costs are those of single layers.
Plan layer_plan(const ModelSpec& model);

// Forward and backward of all samples from the costs of a layer_plan(), each layer launched
// `launches` times in each direction.
LayerTimes layer_times(const StepCosts& costs, std::int64_t launches);

}  // namespace entrain
