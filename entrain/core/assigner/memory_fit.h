// Whether a batch fits a plan's memory limits, without searching for a good step time.
//
// Read first: memory_miss().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "entrain/core/assigner/assigner.h"

namespace entrain {

// By how much the nearest assignment found misses the plan's limits.
struct MemoryMiss {
  int lane = 0;
  std::int64_t missing_bytes = 0;  // on it, per device
  std::string reason;              // names lane, slot and bytes
};

// Nothing unless a sample is too large for a lane by itself, whatever is run.
// Cost  O(units × stages).
std::optional<MemoryMiss> sample_miss(const Plan& plan, const StepCosts& costs);

// Nothing if the policy keeps the plan's limits on this batch: for `entrain` with every number
// of evaluations above 0, since its fallbacks (assigner.h) are tried here, the
// quickest first; for others by their assignment.
//
// Requires  all parts of request.options, Objective::kStepTime.
// Ensures   a pure function of policy and request; the plan's evaluations have no effect for
//           `entrain`.
// Throws    as assign() does, except NothingFits.
// Cost      O(units × stages) if a single sample is too large; else `entrain`: one or two
//           evaluations per replica if memory is ample, one assignment with kFewEvaluations if
//           it is short. Others: one assignment and its program.
std::optional<MemoryMiss> memory_miss(std::string_view policy, const AssignRequest& request);

}  // namespace entrain
