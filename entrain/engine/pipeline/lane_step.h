// One step of one lane: options, inputs and outcome.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/base/call_log.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

class LaneCompute;  // lane_compute.h

struct ExecutorOptions {
  // Seed, device, and the dtype of compute and messages. Weights are initialised, trained and
  // checkpointed in float32, and gradients are accumulated in it.
  StageOptions stage;
  double clip_norm = 0;           // largest global gradient norm; 0 = no clipping
  bool record_events = false;     // fill StepOutcome::events, on the first rank of every lane
  bool measure_memory = false;    // fill LaneUsage::peak_bytes and StepOutcome::working_bytes
  bool paced = false;             // PacedCompute instead of RealCompute
  bool overlap_reduction = true;  // under Plan::shard_optimizer (overlapped_reduction.h)
  CallLog* log = nullptr;         // records operations; null: a log of the executor
  // Wraps the compute (fault_drill.h); may be empty.
  std::function<std::unique_ptr<LaneCompute>(std::unique_ptr<LaneCompute>)> decorate;

  // The dtype of messages between lanes.
  [[nodiscard]] at::TensorOptions message_options() const {
    return at::TensorOptions(stage.dtype).device(stage.device);
  }
};

// Everything about one step that all ranks agree on.
struct StepInputs {
  const Program* program = nullptr;
  const StepCosts* costs = nullptr;  // token counts, and operation times if paced
  const std::vector<std::string>* sample_ids = nullptr;  // [sample], for error messages
  std::int64_t step = 0;
  // Divisor of losses, >= 1: target tokens of all replicas, and of all steps of the update that
  // are part of it.
  std::int64_t target_tokens = 0;
  StepData* data = nullptr;                     // may be null if paced
  std::chrono::steady_clock::time_point start;  // common origin of measured times
  // The first and the last of the steps whose gradients are accumulated for one update.
  bool begins_update = true;
  bool ends_update = true;
  // Whether forward and backward run; if not, the step only ends an update for which earlier steps
  // have gradients.
  bool computes = true;
};

enum class RunMode : std::uint8_t { kTrain, kEvaluate };

struct StepOutcome {
  // Cross-entropy summed over this lane's targets; 0 except on the first rank of the lane with the
  // last LLM stage.
  double loss_sum = 0;
  double gradient_norm = 0;  // global, before clipping; the same on all ranks
  // Whether every rank's losses and the norm are finite; the same on all ranks. If not, the
  // optimizer was not called.
  bool finite = true;
  std::vector<TimelineEvent> events;
  LaneUsage usage;
  // Time of the lane's thread within usage.busy; for a device other than the CPU, the device's
  // time.
  std::chrono::nanoseconds processor{0};
  // Peak of allocated bytes, including temporaries of the current operation and messages, excluding
  // parameters and their gradients (except gradients the operation is computing); 0
  // if not measured. usage.peak_bytes excludes the temporaries: it is the peak between
  // operations, which is what the simulator predicts.
  std::int64_t working_bytes = 0;
};

}  // namespace entrain::engine
