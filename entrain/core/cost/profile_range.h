// Whether a profile is used within its measured range.
//
// Read first: range_warnings(). A fitted curve is unreliable for microbatches far larger than the
// largest measured one; users of such predictions are warned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

// A measured curve may be used up to this multiple of its measured range without a warning.
inline constexpr double kRangeAllowance = 2.0;

// The largest microbatch of a module that a batch certainly has: its largest unit (segment in an
// encoder, sample in the LLM), or the mean microbatch if larger. Each number separately.
struct ModuleUse {
  double tokens = 0;
  double pairs = 0;
  double window_pairs = 0;   // of windowed layers, instead of attention pairs
  double target_tokens = 0;  // LLM
};

// Shapes    result: [module].
// Requires  num_slots >= 1: microbatches over all replicas.
std::vector<ModuleUse> least_use(const ModelSpec& model,
                                 std::span<const SampleWork> batch,
                                 int num_slots);

// One sentence for every layer kind that `batch` uses beyond kRangeAllowance times the tokens or
// pairs it was measured on, with the numbers and what to do. Empty for entries without a range
// (analytic profiles).
//
// Requires  plan and profile are valid for the model.
// Throws    InvalidInput when the profile lacks a layer at the plan's parallelism.
std::vector<std::string> range_warnings(const ModelSpec& model,
                                        const Plan& plan,
                                        const Profile& profile,
                                        std::span<const SampleWork> batch);

}  // namespace entrain
