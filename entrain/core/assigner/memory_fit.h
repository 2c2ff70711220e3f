// Whether a batch fits a plan's memory limits, asked for its own sake: no step time is looked for.
//
// Read first: memory_miss().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "entrain/core/assigner/assigner.h"

namespace entrain {

// By how much the nearest assignment that was found misses the plan's limits.
struct MemoryMiss {
  int lane = 0;
  std::int64_t missing_bytes = 0;  // on it, per device
  std::string reason;              // names lane, slot and bytes
};

// Nothing where the policy keeps the plan's limits on this batch: for `entrain` with every number
// of evaluations above 0, since what it falls back on (assigner.h) is what is tried here, the
// quickest first; for others by the assignment that they make.
//
// Requires  all parts of request.options, Objective::kStepTime.
// Ensures   a pure function of policy and request, whose plan's evaluations do not count for
//           `entrain`.
// Throws    as assign() does, NothingFits apart.
// Cost      O(units × stages) where a sample by itself is too large; else `entrain`: one or two
//           evaluations a replica where memory is ample, one assignment with kFewEvaluations where
//           it is short. Others: one assignment and its program.
std::optional<MemoryMiss> memory_miss(std::string_view policy, const AssignRequest& request);

}  // namespace entrain
