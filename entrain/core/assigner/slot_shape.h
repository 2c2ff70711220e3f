// Target share of the work for each slot: slots near both ends are short, so that the pipeline
// fills and drains quickly.
#pragma once

#include <array>
#include <vector>

namespace entrain {

// Targets rise to 1, stay there, and fall.
struct SlotShape {
  int rise = 12;  // over so many 24ths of the slots; 0: they begin at 1
  int fall = 12;
  bool root = false;  // their square roots instead: flatter
  bool operator==(const SlotShape&) const = default;
};

inline constexpr SlotShape kTriangle{.rise = 12, .fall = 12};
inline constexpr SlotShape kRootTriangle{.rise = 12, .fall = 12, .root = true};
inline constexpr SlotShape kTrapezoid{.rise = 6, .fall = 6};
inline constexpr SlotShape kLateTriangle{.rise = 16, .fall = 8};
inline constexpr SlotShape kEarlyTriangle{.rise = 8, .fall = 16};
inline constexpr SlotShape kFlat{.rise = 0, .fall = 0};

inline constexpr std::array kSlopedShapes = {
    kTriangle, kRootTriangle, kTrapezoid, kLateTriangle, kEarlyTriangle};

// Shapes   [num_slots], all > 0; only their ratios matter.
// Source   the triangle and its root: our search notes; uses only + - × ÷ √, so it is equal on
//          every machine.
std::vector<double> slot_targets(const SlotShape& shape, int num_slots);

}  // namespace entrain
