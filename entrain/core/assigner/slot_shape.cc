#include "entrain/core/assigner/slot_shape.h"

#include <algorithm>
#include <cmath>

namespace entrain {

std::vector<double> slot_targets(const SlotShape& shape, int num_slots) {
  const double rise = std::max(1.0, (num_slots + 1) * shape.rise / 24.0);
  const double fall = std::max(1.0, (num_slots + 1) * shape.fall / 24.0);
  std::vector<double> targets;
  targets.reserve(static_cast<std::size_t>(std::max(0, num_slots)));
  for (int slot = 0; slot < num_slots; ++slot) {
    const double target = std::min({(slot + 1) / rise, (num_slots - slot) / fall, 1.0});
    targets.push_back(shape.root ? std::sqrt(target) : target);
  }
  return targets;
}

}  // namespace entrain
