// Kinds of faults that a drill makes (fault_drill.h), and their names in a run file; without torch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace entrain::engine {

enum class FaultKind : std::uint8_t {
  kThrow,      // throws, as a bug would
  kHang,       // does nothing for FaultDrill::hang, then continues
  kDie,        // exits without an abort or a dump
  kWrongSize,  // its next message (at the latest the step's last) has one row too many
  kNan,        // one of its outputs becomes NaN
};

inline constexpr std::array<std::string_view, 5> kFaultNames = {
    "throw", "hang", "die", "wrong-size", "nan"};

}  // namespace entrain::engine
