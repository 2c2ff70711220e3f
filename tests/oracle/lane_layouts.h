// Plans whose lanes host several stages, as `interleaved` and `dip` want them.
#pragma once

#include <cstddef>

#include "entrain/core/base/random.h"
#include "entrain/core/spec/plan.h"

namespace entrain::oracle {

// Stage i of each module on lane i mod n of n lanes of its own, n drawn.
inline void wrap_lanes(Rng& rng, Plan& plan) {
  plan.lanes.clear();
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    const std::size_t stages = plan.modules[module].stages.size();
    const std::size_t first = plan.lanes.size();
    const std::size_t lanes = 1 + static_cast<std::size_t>(rng.below(stages));
    plan.lanes.resize(first + lanes);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      plan.lanes[first + stage % lanes].push_back(
          {static_cast<int>(module), static_cast<int>(stage)});
    }
  }
}

// Lane s hosts stage s of every module.
// Requires  all modules have equal numbers of stages.
inline void colocate_lanes(Plan& plan) {
  plan.lanes.assign(plan.modules[0].stages.size(), {});
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    for (std::size_t stage = 0; stage < plan.lanes.size(); ++stage) {
      plan.lanes[stage].push_back({static_cast<int>(module), static_cast<int>(stage)});
    }
  }
}

}  // namespace entrain::oracle
