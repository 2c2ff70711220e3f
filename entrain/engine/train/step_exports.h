// A run's figures for other programs, as [metrics] asks: TensorBoard's event files, and a file for
// Prometheus. metrics.jsonl is metrics.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "entrain/core/report/event_file.h"
#include "entrain/core/report/exposition.h"
#include "entrain/core/report/run_rows.h"

#include "entrain/engine/train/metrics.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// The step's row, with the figures that are exported.
RunRow run_row(const PreparedStep& prepared, const StepRecord& record);

class StepExports {
 public:
  // For a run that begins at `first_step`. Throws  SystemFailure if a file cannot be written.
  StepExports(const RunConfig& config, std::int64_t first_step);
  ~StepExports();  // writes the last step for Prometheus, if it is not yet there
  StepExports(const StepExports&) = delete;
  StepExports& operator=(const StepExports&) = delete;

  // Requires  record.loss per target token.
  void step(const PreparedStep& prepared, const StepRecord& record);
  // `step`: finished ones.
  void validation(std::int64_t step, double loss);

 private:
  void write_exposition();

  std::optional<EventFolder> events_;
  std::filesystem::path exposition_;  // empty: none
  RunRow row_;                        // of the last step
  RunTotals totals_;
  bool warned_ = false;   // that it could not be written
  bool pending_ = false;  // the last step is not in the file yet
  std::optional<std::chrono::steady_clock::time_point> written_;
};

}  // namespace entrain::engine
