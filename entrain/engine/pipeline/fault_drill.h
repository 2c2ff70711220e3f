// Drills: one rank misbehaves on purpose in the middle of a step, so that one can see how the
// others find out and what is said about it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "entrain/core/spec/program.h"

namespace entrain::engine {

enum class FaultKind : std::uint8_t {
  kThrow,      // fails as a bug would make it
  kHang,       // does nothing for FaultDrill::hang, then goes on
  kDie,        // is gone without a word: no abort, no dump
  kWrongSize,  // its next message (at the latest the step's last) has a row too many
  kNan,        // one of its outputs becomes NaN
};

inline constexpr std::array<std::string_view, 5> kFaultNames = {
    "throw", "hang", "die", "wrong-size", "nan"};

struct FaultDrill {
  std::int64_t step = -1;  // -1: no drill
  FaultKind kind = FaultKind::kThrow;
  std::chrono::milliseconds hang{0};
};

// Thrown by kDie and by nothing else. No std::exception, so that it passes all who report failures:
// whoever runs the rank lets it end in silence (a thread returns, a process kills itself).
struct RankVanished {};

// Where in a lane's list: the middle; for what a drill does to a message or an output, the next one
// there is, or else the last; -1 where there is none.
int drill_position(const FaultDrill& drill, const std::vector<Operation>& operations);

// What happens there before the operation: nothing where the drill concerns its message or output.
//
// Throws  std::runtime_error (kThrow), RankVanished (kDie).
void misbehave_before(const FaultDrill& drill, const Operation& operation);

}  // namespace entrain::engine
