// Metrics of a run: one JSON line per step, and a console line in torchtitan's manner.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <vector>

#include "entrain/core/spec/timeline.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/train/data_rates.h"
#include "entrain/engine/train/drift_watch.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/skipped_steps.h"

namespace entrain::engine {

struct StepRecord {
  std::int64_t step = 0;
  double loss = 0;           // cross-entropy per target token of the step
  bool updated = true;       // the weights were updated after the step
  double gradient_norm = 0;  // before clipping; only if updated
  double learning_rate = 0;
  double step_s = 0;            // first start to last finish over all ranks
  std::optional<double> gap_s;  // from the end of the previous step; none for a run's first step
  double assign_wait_s = 0;     // part of the gap: time rank 0 waited for the step's assignment
  std::optional<double> expected_s;  // simulated, at the measured speed of the previous steps
  Timeline measured;                 // usage of every lane; events if requested
  std::vector<std::vector<double>> processor_s;  // [replica][lane] of forward and backward
  DataTimes data;                                // of the rank that waited longest for its samples
  int decode_threads = 0;                        // of that rank
  DecodedData decoded;                           // of all ranks
  std::optional<DriftState> drift;               // if it is watched
  std::optional<SkippedStep> skipped;            // why the step was skipped
  std::int64_t skipped_steps = 0;                // including this one, over the whole run
};

// What rows of steps hold beside the rest.
struct MetricsContent {
  bool samples = false;  // the ids of the step's samples
  bool fed = false;      // the share that feeds decoded: the run has some
};

// Writes metrics.jsonl line by line, so that a killed run keeps its finished steps.
class MetricsLog {
 public:
  // A new file; with `continue_at`, the existing one, truncated to its state after that many
  // steps: later rows and a row cut short by a kill are removed. The console shows every
  // `console_every`th step, the first, the last, and one a minute; `now` is its clock.
  //
  // Throws  SystemFailure when the file cannot be written.
  MetricsLog(
      const std::filesystem::path& folder,
      std::int64_t steps,
      std::int64_t console_every,
      std::optional<std::int64_t> continue_at = {},
      MetricsContent content = {},
      std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now);

  // A drift warning is also written to standard error. The console shows how fast samples are
  // decoded and needed once, after the first steady steps.
  void step(const PreparedStep& prepared, const StepRecord& record);
  // A skipped step: a row with the reason, and a warning on standard error.
  void skipped(const PreparedStep& prepared, const StepRecord& record);
  // `patches`: decoded for it by all ranks together.
  void validation(std::int64_t step, double loss, std::int64_t patches);
  void note(const std::string& text);  // console only

 private:
  void write(const Json& line);
  // The step's line on the console.
  void show(const PreparedStep& prepared, const StepRecord& record, std::size_t deferred);

  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t steps_;
  std::int64_t console_every_;
  MetricsContent content_;
  bool coloured_;
  std::function<std::chrono::steady_clock::time_point()> now_;
  std::int64_t first_step_;
  DataRates data_rates_;
  std::chrono::steady_clock::time_point started_;
  std::optional<std::chrono::steady_clock::time_point> shown_;  // last line; empty: none
};

}  // namespace entrain::engine
