// Compares a profile's predictions with whole stages: several layers on real packed slots, of sizes
// that the profile was not fitted to.
//
// Read first: check_stages().
#pragma once

#include <span>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {

// One slot through one stage, forward and backward, in nanoseconds.
struct StageTime {
  int module = 0;
  int stage = 0;
  int slot = 0;
  double tokens = 0;  // of the module
  double measured_forward = 0;
  double measured_backward = 0;  // 0 if the stage has no backward
  double predicted_forward = 0;
  double predicted_backward = 0;

  // (predicted - measured) / measured, of forward and backward together.
  [[nodiscard]] double error() const;
};

// Runs every slot (the samples of one microbatch) through every stage of `plan`: the real stages on
// synthetic content of the slot's real lengths, with graphs, freezing and input gradients as
// in a step. Takes the mean of `repeats` (capped_mean()) by Stopwatch (which reads `clock` if
// given), after one warm-up run, slots in turn. Predicted times are operation_time() of the same
// slots.
//
// Requires  plan and profile are valid for the model; tensor_parallel 1; no slot empty; repeats >=
//           1.
// Throws    InvalidInput for encoders that cannot run; SystemFailure if the profile's device does
//           not exist.
std::vector<StageTime> check_stages(const ModelSpec& model,
                                    const Plan& plan,
                                    const Profile& profile,
                                    std::span<const std::vector<SampleWork>> slots,
                                    int repeats,
                                    const NanosecondClock& clock = {});

struct ErrorSummary {
  std::string what;  // "vision 0", or "all"
  int count = 0;
  double median = 0;  // of |error|
  double worst = 0;   // likewise
  double bias = 0;    // median of error, with its sign
};

// One row a stage and direction, then "all" over forward and backward of every slot and stage
// together.
// Requires  times not empty.
std::vector<ErrorSummary> summarise(const ModelSpec& model, std::span<const StageTime> times);

}  // namespace entrain::engine
