#include "entrain/core/assigner/slot_shape.h"

#include <algorithm>
#include <cmath>

namespace entrain {
namespace {

constexpr double kLow = 0.25;  // slot of a comb

// Rises over `rise` slots, falls over `fall` slots, 1 at most.
double ramp(int slot, int num_slots, double rise, double fall) {
  const double up = (slot + 1) / rise;
  const double down = (num_slots - slot) / fall;
  return std::min({up, down, 1.0});
}

}  // namespace

std::vector<double> slot_targets(SlotShape shape, int num_slots) {
  std::vector<double> targets;
  const double half = (num_slots + 1) / 2.0;
  const double third = std::max(1.0, (num_slots + 1) / 3.0);
  const double quarter = std::max(1.0, (num_slots + 1) / 4.0);
  for (int slot = 0; slot < num_slots; ++slot) {
    switch (shape) {
      case SlotShape::kTriangle:
        targets.push_back(ramp(slot, num_slots, half, half));
        break;
      case SlotShape::kRootTriangle:
        targets.push_back(std::sqrt(ramp(slot, num_slots, half, half)));
        break;
      case SlotShape::kTrapezoid:
        targets.push_back(ramp(slot, num_slots, quarter, quarter));
        break;
      case SlotShape::kLateTriangle:
        targets.push_back(ramp(slot, num_slots, 2 * third, third));
        break;
      case SlotShape::kEarlyTriangle:
        targets.push_back(ramp(slot, num_slots, third, 2 * third));
        break;
      case SlotShape::kCombOf8:
        targets.push_back(slot % 8 == 4 ? 1.0 : kLow);
        break;
      case SlotShape::kCombOf4:
        targets.push_back(slot % 4 == 2 ? 1.0 : kLow);
        break;
      case SlotShape::kFlat:
        targets.push_back(1.0);
        break;
    }
  }
  return targets;
}

}  // namespace entrain
