#include "entrain/core/spec/timeline.h"

#include <algorithm>

namespace entrain {

double bubble_fraction(const Timeline& timeline) {
  std::chrono::nanoseconds busy{0};
  std::int64_t num_lanes = 0;
  for (const std::vector<LaneUsage>& replica : timeline.lanes) {
    for (const LaneUsage& lane : replica) {
      busy += lane.busy;
      ++num_lanes;
    }
  }
  if (num_lanes == 0 || timeline.makespan.count() <= 0) {
    return 0.0;
  }
  const double total =
      static_cast<double>(timeline.makespan.count()) * static_cast<double>(num_lanes);
  return std::clamp(1.0 - static_cast<double>(busy.count()) / total, 0.0, 1.0);
}

}  // namespace entrain
