// Target share of the work for each slot: slots near both ends are short, so that the pipeline
// fills and drains quickly.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace entrain {

enum class SlotShape : std::uint8_t {
  kTriangle,       // rises to the middle, falls to the end
  kRootTriangle,   // its square root: flatter
  kTrapezoid,      // rises over a quarter, flat, falls over a quarter
  kLateTriangle,   // rises over two thirds, falls over one
  kEarlyTriangle,  // rises over one third, falls over two
  kFlat,
  kCombOf8,  // one high slot, then seven low ones: heavy samples are in flight alone
  kCombOf4,  // one high slot, then three low ones
};
inline constexpr std::array kSlopedShapes = {SlotShape::kTriangle,
                                             SlotShape::kRootTriangle,
                                             SlotShape::kTrapezoid,
                                             SlotShape::kLateTriangle,
                                             SlotShape::kEarlyTriangle};

inline constexpr std::array kCombs = {SlotShape::kCombOf8, SlotShape::kCombOf4};

// Shapes   [num_slots], all > 0; only their ratios matter.
// Source   the triangle and its root: our search notes; uses only + - × ÷ √, so it is equal on
//          every machine.
std::vector<double> slot_targets(SlotShape shape, int num_slots);

}  // namespace entrain
