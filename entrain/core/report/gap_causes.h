// Why a step takes longer than its lower bound: the difference, cause by cause.
//
// Read first: gap_causes().
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

enum class GapCause : std::uint8_t {
  kFill,       // before the lane's first operation
  kDrain,      // after its last one, without reduction and optimizer
  kOversized,  // waits for operations on a unit that alone is heavier than a mean slot
  kUneven,     // units are indivisible: more work here than in the mean replica, and waits for
               // operations on more than 1.05 times a mean slot's work
  kOrder,      // other waits for operations: earlier ones in their lanes' order
  kLaunches,   // constants per operation
  kLinks,      // waits while a message was in flight
};
inline constexpr int kNumGapCauses = 7;

std::string_view name_of(GapCause cause);  // "fill", "drain", "oversized", "uneven", …

// The gap of one lane: the one with the most work in the replica that finishes last.
//
// Ensures  the sum of `time` less `in_bound` is the step time less the bound.
struct GapCauses {
  int replica = 0;
  int lane = 0;
  std::array<std::chrono::nanoseconds, kNumGapCauses> time{};  // [GapCause], each >= 0
  // The part of these that the bound includes: the head and tail of every order, an oversized
  // sample's path, and work that a replica with an oversized sample leaves to the others.
  std::chrono::nanoseconds in_bound{0};

  [[nodiscard]] std::chrono::nanoseconds of(GapCause cause) const {
    return time[static_cast<std::size_t>(cause)];
  }
};

// A wait is traced back through the operations and messages of other lanes that filled it,
// each of which counts for its own cause. "Mean slot" is the mean work of a replica's slots in the
// same operation on the same stage.
//
// Requires  a timeline with events that simulate() made of this program and these costs, links not
//           shared and reductions not overlapped.
// Cost      O(events × receives of a lane).
GapCauses gap_causes(const Program& program,
                     const Timeline& timeline,
                     const StepCosts& costs,
                     std::chrono::nanoseconds bound);

// "fill 1.2 %, order 0.8 %, uneven 0.3 %": shares of `whole`, largest first, only those of at
// least 0.05 %.
std::string to_string(const GapCauses& causes, std::chrono::nanoseconds whole);

}  // namespace entrain
