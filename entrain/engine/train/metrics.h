// What a run reports: one JSON line a step, and a console line in torchtitan's manner.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <vector>

#include "entrain/core/spec/timeline.h"

#include "entrain/engine/train/drift_watch.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/skipped_steps.h"

namespace entrain::engine {

struct StepRecord {
  std::int64_t step = 0;
  double loss = 0;           // cross-entropy per target token of the step
  bool updated = true;       // an update of the weights was made behind the step
  double gradient_norm = 0;  // before clipping; with an update
  double learning_rate = 0;
  double step_s = 0;                 // first start to last finish over all ranks
  std::optional<double> gap_s;       // from the end of the step before; none for a run's first step
  double assign_wait_s = 0;          // of the gap: how long rank 0 waited for the step's assignment
  std::optional<double> expected_s;  // simulated, at the speed of the steps before
  Timeline measured;                 // usage of every lane; events where asked for
  std::vector<std::vector<double>> processor_s;  // [replica][lane] of forward and backward
  std::optional<DriftState> drift;               // where it is watched
  std::optional<SkippedStep> skipped;            // why the step is in no update
  std::int64_t skipped_steps = 0;                // with this one, over the whole run
};

// Writes metrics.jsonl line by line, so that a killed run keeps what it had.
class MetricsLog {
 public:
  // A new file; with `continue_at`, the one that is there, cut back to what it held when that many
  // steps were finished: later rows, and one that a kill cut short, go. `log_samples`: every step's
  // row holds the ids of its samples. The console shows every `console_every`th step, the first,
  // the last, and one a minute; `now` is its clock.
  //
  // Throws  SystemFailure when the file cannot be written.
  MetricsLog(
      const std::filesystem::path& folder,
      std::int64_t steps,
      std::int64_t console_every,
      std::optional<std::int64_t> continue_at = {},
      bool log_samples = false,
      std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now);

  // A drift's warning goes to standard error too.
  void step(const PreparedStep& prepared, const StepRecord& record);
  // A step that was skipped: a row that says why, and a warning on standard error.
  void skipped(const PreparedStep& prepared, const StepRecord& record);
  void validation(std::int64_t step, double loss);
  void note(const std::string& text);  // console only

 private:
  void write(const Json& line);
  // The step's line on the console.
  void show(const PreparedStep& prepared, const StepRecord& record, std::size_t deferred);

  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t steps_;
  std::int64_t console_every_;
  bool log_samples_;
  bool coloured_;
  std::function<std::chrono::steady_clock::time_point()> now_;
  std::int64_t first_step_;
  std::chrono::steady_clock::time_point started_;
  std::optional<std::chrono::steady_clock::time_point> shown_;  // the last line; none yet
};

}  // namespace entrain::engine
