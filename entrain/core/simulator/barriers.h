// The step-wide operations that wait for other lanes: reduce_gradients and clip_norm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "entrain/core/simulator/state.h"

namespace entrain::simulation {

// Lanes first, first + step, … of all lanes of all replicas wait for each other.
struct LaneSet {
  int first = 0;
  int step = 1;
};

// The barriers of one set of lanes, one after another.
class Barriers {
 public:
  Barriers(LaneSet lanes, int num_lanes)
      : lanes_(lanes), needed_((num_lanes - lanes.first + lanes.step - 1) / lanes.step) {}

  // A lane arrives at its barrier number `ordinal`; it may call again. Appends the lanes to wake
  // to `runnable` when it is the last to arrive.
  // Returns  the latest arrival time once all have arrived, else nullptr.
  const std::int64_t* arrive(ReplayLane& lane,
                             int lane_index,
                             int ordinal,
                             std::vector<int>& runnable);

 private:
  struct Round {
    int arrived = 0;
    std::int64_t latest = 0;
  };

  LaneSet lanes_;
  int needed_;
  std::vector<Round> rounds_;  // [ordinal]
};

}  // namespace entrain::simulation
