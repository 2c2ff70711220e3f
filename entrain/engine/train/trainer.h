// The training loop: ranks as threads, steps prepared ahead, metrics, validation, weights at the
// end.
//
// Read first: train(). One call trains a run from its first step to its last, or to Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

struct TrainResult {
  std::int64_t steps = 0;  // finished
  double first_loss = 0;
  double last_loss = 0;  // mean of the last ten steps
  std::optional<double> validation_loss;
  bool interrupted = false;
  double median_step_s = 0;
  double median_predicted_s = 0;
  std::filesystem::path weights;  // empty in a paced run
};

// Writes into config.output: config.json, plan.json, metrics.jsonl, weights.safetensors, and for
// execution.trace_step trace_predicted.json and trace_measured.json.
//
// `interrupted` set from a signal handler ends the run after the step in progress; weights are
// written. Throws  InvalidInput, SystemFailure or InternalError of the first rank that failed, with
// rank, operation and
//         samples; every other rank has stopped by then.
TrainResult train(const RunSetup& setup, const std::atomic<bool>& interrupted);

}  // namespace entrain::engine
