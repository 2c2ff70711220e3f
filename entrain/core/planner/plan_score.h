// One step under a plan as in a run: assigned by the plan's policy, ordered by its schedule,
// replayed against the costs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

struct StepScore {
  std::int64_t ns = 0;                        // simulated step time
  std::vector<std::int64_t> lane_peak_bytes;  // [lane] largest activation bytes over replicas
  std::string reason;                         // why it does not fit; empty if it does
  bool gave_up = false;  // ns is what the step hardly falls below, and peaks are missing

  [[nodiscard]] bool fits() const { return reason.empty(); }
};

// As in AssignRequest.
struct ScoreOptions {
  std::int64_t give_up_ns = std::numeric_limits<std::int64_t>::max();
  int threads = 1;
};

// Requires  costs of this plan; its policy and schedule exist.
// Ensures   a pure function of its arguments. The policy `entrain` gives up what it expects to take
//           longer than options.give_up_ns. If the policy finds nothing within the plan's
//           limits, or a lane exceeds them, the reason says so; peaks are missing in the first
//           case.
// Throws    as assign() does, except NothingFits.
// Cost      one assignment, one program, one replay.
StepScore score_step(const Plan& plan,
                     const StepCosts& costs,
                     std::int64_t step,
                     std::uint64_t seed,
                     const ScoreOptions& options = {});

}  // namespace entrain
