// One step of one lane: how it runs, what it is given, what it leaves.
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
  // Seed, device, and the dtype to compute and to send with. Weights begin, are trained and are
  // checkpointed in float32, gradients are added up in it.
  StageOptions stage;
  double clip_norm = 0;           // largest global gradient norm; 0 = no clipping
  bool record_events = false;     // fill StepOutcome::events, on the first rank of every lane
  bool measure_memory = false;    // fill LaneUsage::peak_bytes and StepOutcome::working_bytes
  bool paced = false;             // PacedCompute instead of RealCompute
  bool overlap_reduction = true;  // under Plan::shard_optimizer (overlapped_reduction.h)
  CallLog* log = nullptr;         // where operations are noted; null: in one of the executor's own
  // Puts something around what computes (fault_drill.h); may be empty.
  std::function<std::unique_ptr<LaneCompute>(std::unique_ptr<LaneCompute>)> decorate;

  // Of what lanes send each other.
  [[nodiscard]] at::TensorOptions message_options() const {
    return at::TensorOptions(stage.dtype).device(stage.device);
  }
};

// Everything about one step that all ranks agree on.
struct StepInputs {
  const Program* program = nullptr;
  const StepCosts* costs = nullptr;                      // token counts, and times when paced
  const std::vector<std::string>* sample_ids = nullptr;  // [sample], for error messages
  std::int64_t step = 0;
  // What losses are divided by, >= 1: target tokens of all replicas, and of all steps of the update
  // as far as they are in it.
  std::int64_t target_tokens = 0;
  StepData* data = nullptr;                     // may be null when paced
  std::chrono::steady_clock::time_point start;  // common origin of measured times
  // Of the steps whose gradients are added up for one update: the first one, and the last.
  bool begins_update = true;
  bool ends_update = true;
  // Whether forward and backward run; without, the step ends an update that earlier ones have
  // gradients for.
  bool computes = true;
};

enum class RunMode : std::uint8_t { kTrain, kEvaluate };

struct StepOutcome {
  // Cross-entropy summed over this lane's targets; 0 off the last LLM stage, and but on the lane's
  // first rank.
  double loss_sum = 0;
  double gradient_norm = 0;  // global, before clipping; the same on all ranks
  // Whether every rank's losses and the norm are numbers; the same on all ranks. Where not, the
  // optimizer has not been called.
  bool finite = true;
  std::vector<TimelineEvent> events;
  LaneUsage usage;
  // Time of the lane's thread within usage.busy; of a device that is not the processor, its own.
  std::chrono::nanoseconds processor{0};
  // Most that was allocated at any moment, temporaries of the operation at hand and messages among
  // it, parameters and their gradients not (those that an operation is just making excepted); 0
  // where not measured. usage.peak_bytes leaves the temporaries out: what is held between
  // operations, which is what the simulator predicts.
  std::int64_t working_bytes = 0;
};

}  // namespace entrain::engine
