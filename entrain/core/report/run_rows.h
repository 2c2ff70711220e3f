// The rows of a run's metrics.jsonl: docs/training.md explains every key.
//
// Read first: read_run_rows() for a whole file, RunRowsReader for one that a run is writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// A lane in one step.
struct LaneRow {
  int replica = 0;
  int lane = 0;
  double busy_s = 0;  // in forwards and backwards
  double predicted_busy_s = 0;
  std::optional<double> processor_s;
  std::optional<std::int64_t> peak_bytes;  // of activations; with execution.measure_memory
  std::optional<std::int64_t> predicted_peak_bytes;
};

// A step. Empty where the row has no such key or null, as for a loss that is not a number.
struct RunRow {
  std::int64_t step = 0;               // from 0
  std::optional<std::int64_t> steps;   // of the whole run
  std::optional<std::string> skipped;  // why the step was skipped; it has few other figures then
  std::string detail;                  // which sample or loss caused the skip
  std::optional<double> loss;
  std::optional<double> grad_norm;
  std::optional<double> learning_rate;
  std::optional<double> step_s;
  std::optional<double> predicted_step_s;
  std::optional<double> expected_step_s;
  std::optional<double> lower_bound_s;
  std::optional<double> gap_s;  // since the previous step
  std::optional<double> data_wait_s;
  std::optional<double> bubble;
  std::optional<double> predicted_bubble;
  std::optional<double> fed;  // share that feeds decoded
  std::optional<std::int64_t> samples;
  std::optional<std::int64_t> llm_tokens;
  std::optional<std::int64_t> deferred;
  std::string drift_warning;  // at the step that raised the alarm
  std::vector<LaneRow> lanes;
};

struct ValidationRow {
  std::int64_t step = 0;       // finished steps
  std::optional<double> loss;  // empty if it was not a number
};

struct RunRows {
  std::vector<RunRow> steps;               // in the file's order
  std::vector<ValidationRow> validations;  // likewise
  int cut_lines = 0;                       // 1 if the last line has no end yet; it is left out
};

// Throws  InvalidInput naming file and line where a line is not JSON, no row of a run's metrics, or
//         has a value of another type; and when the file does not exist or is a folder.
//         SystemFailure when it cannot be read. Unknown keys are ignored.
RunRows read_run_rows(const std::filesystem::path& path);

// Reads a file that grows: every call reads what was appended since the last one.
class RunRowsReader {
 public:
  struct News {
    RunRows rows;           // the new ones
    bool replaced = false;  // the file was replaced or cut: earlier rows no longer count
    bool more = false;      // more can be read at once
  };

  explicit RunRowsReader(std::filesystem::path path);

  // Reads at most a few MiB. Throws  as read_run_rows().
  News read();

 private:
  // Adds a complete line.
  void add(std::string_view line, RunRows& rows);

  std::filesystem::path path_;
  std::uint64_t device_ = 0;  // with inode_ the file that was read
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;  // bytes read
  std::int64_t line_ = 0;    // complete lines read
  std::string cut_;          // what was read of a line without end
};

}  // namespace entrain
