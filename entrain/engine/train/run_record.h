// Rank 0's record of a run: every step in metrics.jsonl and on the console, drift, and the
// run's summary.
//
// Read first: RunRecord::step().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "entrain/engine/train/drift_watch.h"
#include "entrain/engine/train/metrics.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/run_setup.h"
#include "entrain/engine/train/run_speed.h"
#include "entrain/engine/train/step_exports.h"

namespace entrain::engine {

// Over the recorded steps.
struct RunFigures {
  std::int64_t steps = 0;    // finished, skipped ones among them
  std::int64_t skipped = 0;  // of these, skipped; see skipped_steps.h
  double first_loss = 0;
  double last_loss = 0;  // mean of the last ten steps
  std::optional<double> validation_loss;
  double median_step_s = 0;
  double median_predicted_s = 0;
};

class RunRecord {
 public:
  // For a run that begins at `first_step`. Requires  setup outlives this object.
  // Throws  SystemFailure when metrics.jsonl or what [metrics] asks for cannot be written.
  RunRecord(const RunSetup& setup, std::int64_t first_step);

  // Notes at the start of a run. `set_aside`: prepare_folders()'s line; `in_processes`: whether
  // ranks are processes.
  void begin(const std::string& set_aside, bool in_processes);
  // A step that all ranks have finished. `record` comes from the step barrier.
  //
  // Throws  SystemFailure if the loss is not finite and the step was not skipped for that.
  void step(const PreparedStep& prepared, StepRecord record);
  void validation(std::int64_t step, double loss, std::int64_t patches);
  void note(const std::string& text) { metrics_.note(text); }

  [[nodiscard]] RunFigures figures() const;

 private:
  void note_resume();
  void replay_drift();

  const RunSetup& setup_;
  std::int64_t first_step_;
  MetricsLog metrics_;
  StepExports exports_;
  std::optional<DriftWatch> drift_;
  RunSpeed speed_;
  std::int64_t skipped_ = 0;
  std::vector<double> losses_;  // [step that was not skipped]
  std::vector<double> step_seconds_;
  std::vector<double> predicted_seconds_;
  std::optional<double> validation_loss_;
};

}  // namespace entrain::engine
