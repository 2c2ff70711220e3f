// Limits of activation memory for the lanes of a study.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/study/study.h"

namespace entrain {

enum class MemoryKind : std::uint8_t {
  kPlan,   // the plan's
  kFree,   // no limit
  kEqual,  // per lane and step: equal_memory()
  kBytes,  // one number for every lane
};

struct MemoryRule {
  MemoryKind kind = MemoryKind::kPlan;
  std::int64_t bytes = 0;  // of kBytes
};

// "plan", "free", "equal", or bytes: "2000000", "1.5GiB", "300 MiB".
// Throws  InvalidInput for anything else and for 0 bytes.
MemoryRule parse_memory_rule(std::string_view text);

// Limits for comparing policies: per lane the larger of half of the activation bytes that
// one replica's share of the batch (the mean over replicas) has on the lane, and what `lpt-2d` with
// `1f1b` needs there under this plan.
//
// Shapes  result: [lane], each >= 1.
// Cost    one assignment by `lpt-2d` and one simulation.
std::vector<std::int64_t> equal_memory(const Plan& plan,
                                       const StepCosts& costs,
                                       std::int64_t step,
                                       std::uint64_t seed);

// Sets plan.limits by the rule, for one step's costs.
void apply_memory_rule(const MemoryRule& rule,
                       const StepCosts& costs,
                       std::int64_t step,
                       std::uint64_t seed,
                       Plan& plan);

// One step of a study, ready to be assigned.
struct StudyStep {
  Plan plan;  // with limits by the memory rule
  StudyBatch batch;
  StepCosts costs;
};
StudyStep make_step(const Study& study, Plan plan, const MemoryRule& rule, std::int64_t step);

}  // namespace entrain
