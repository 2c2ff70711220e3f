// What every layer of a model costs for a batch of samples: what layers are cut into stages by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

using LayerTimes = std::vector<std::vector<std::int64_t>>;  // [module][layer] nanoseconds

// Forward and backward of all samples at tensor parallelism 1, each layer launched `launches` times
// in each direction.
//
// Requires  launches >= 0; `work` comes from the same model.
// Throws    InvalidInput as step_costs() does.
// Cost      O(units × layers).
LayerTimes layer_times(const ModelSpec& model,
                       const Profile& profile,
                       std::span<const SampleWork> work,
                       std::int64_t launches);

}  // namespace entrain
