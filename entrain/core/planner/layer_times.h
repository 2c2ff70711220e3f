// Costs of every layer of a model for a batch of samples, for cutting layers into stages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

using LayerTimes = std::vector<std::vector<std::int64_t>>;  // [module][layer] nanoseconds

// A plan of one replica in which every layer is a stage on a separate lane, at tensor parallelism
// 1: its costs are those of single layers.
Plan layer_plan(const ModelSpec& model);

// Forward and backward of all samples from the costs of a layer_plan(), each layer launched
// `launches` times in each direction.
LayerTimes layer_times(const StepCosts& costs, std::int64_t launches);

// The same under a model's profile: forward and backward of all samples at tensor parallelism 1,
// each layer launched `launches` times in each direction.
//
// Requires  launches >= 0; `work` comes from the same model.
// Throws    InvalidInput as step_costs() does.
// Cost      O(units × layers).
LayerTimes layer_times(const ModelSpec& model,
                       const Profile& profile,
                       std::span<const SampleWork> work,
                       std::int64_t launches);

}  // namespace entrain
