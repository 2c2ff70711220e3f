#include "entrain/core/simulator/barriers.h"

#include <algorithm>

namespace entrain::simulation {

const std::int64_t* Barriers::arrive(ReplayLane& lane,
                                     int lane_index,
                                     int ordinal,
                                     std::vector<int>& runnable) {
  const auto index = static_cast<std::size_t>(ordinal);
  if (rounds_.size() <= index) {
    rounds_.resize(index + 1);
  }
  Round& round = rounds_[index];
  if (!lane.at_barrier) {
    lane.at_barrier = true;
    round.latest = std::max(round.latest, lane.clock->time);
    if (++round.arrived == needed_) {
      for (int i = 0, other = lanes_.first; i < needed_; ++i, other += lanes_.step) {
        if (other != lane_index) {
          runnable.push_back(other);
        }
      }
    }
  }
  if (round.arrived < needed_) {
    return nullptr;
  }
  lane.at_barrier = false;
  return &round.latest;
}

}  // namespace entrain::simulation
