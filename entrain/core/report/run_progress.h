// How far a run is, how fast, and what is unusual about it: from the files in its folder.
//
// Read first: RunProgress and RunWatch::look(). `entrain top` shows it (progress_page.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "entrain/core/report/run_rows.h"

namespace entrain {

// What its lock says of a run: run.lock is in the folder while a process writes to it.
enum class RunState : std::uint8_t {
  kRunning,
  kFinished,  // after its last step
  kEnded,     // before it
  kOver,      // nobody writes to it, and its length is not known
};
// "running", "finished", "ended early", "not running"
std::string_view name_of(RunState state);

// A lane in the last step that was not skipped.
struct LaneLoad {
  int replica = 0;
  int lane = 0;
  std::string stages;  // "vision 0, llm 0"; empty without plan.json
  double busy = 0;     // share of the step, in [0, 1]
  double predicted_busy = 0;
};

// The most activations that a lane held in a step so far.
struct LanePeak {
  int replica = 0;
  int lane = 0;
  std::int64_t step = 0;
  std::int64_t bytes = 0;
  std::int64_t limit_bytes = 0;  // of the lane by plan.json; 0: none
  [[nodiscard]] double of_limit() const {
    return limit_bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(limit_bytes) : 0;
  }
};

// The median of the last 50 steps, unless it says otherwise. Empty: not known.
struct RunProgress {
  std::string run;  // folder
  RunState state = RunState::kRunning;
  std::int64_t step = 0;              // finished steps, skipped ones among them; 0: none
  std::optional<std::int64_t> steps;  // of the whole run
  double elapsed_s = 0;               // of all steps and what is between them
  std::optional<double> remaining_s;  // at the mean speed of the last 50 steps
  std::optional<double> loss;         // of the last step that was not skipped
  std::optional<double> first_loss;
  std::optional<double> lowest_loss;
  std::vector<double> losses;  // means of equally many neighbouring steps; at most 48
  std::optional<ValidationRow> validation;
  std::optional<double> step_s;
  std::optional<double> p95_step_s;
  std::optional<double> predicted_step_s;
  std::optional<double> lower_bound_s;
  std::optional<double> llm_tokens_per_s;  // sums of tokens and times of the last 50 steps
  std::optional<double> samples_per_s;
  std::optional<double> data_wait;          // share of the last 50 steps' time
  std::optional<double> bubble;             // of the last step
  std::optional<std::int64_t> state_bytes;  // weights, gradients, moments: the fullest rank
  std::optional<std::int64_t> total_bytes;  // of all ranks
  std::optional<std::int64_t> peak_bytes;   // of activations in the last step: the fullest lane
  std::optional<std::int64_t> predicted_peak_bytes;
  std::optional<LanePeak> highest_peak;  // of all steps: the lane nearest its limit, else the most
  std::vector<LaneLoad> lanes;
  std::vector<std::string> warnings;  // sentences
};

// The loss over a whole run in few numbers.
class LossCurve {
 public:
  static constexpr std::size_t kMostPoints = 48;

  void add(double loss);
  [[nodiscard]] std::vector<double> points() const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };
  std::vector<Mean> means_;      // of steps_each_ losses, the last one of fewer
  std::int64_t steps_each_ = 1;  // doubles when there are too many points
};

// Follows a run. Memory does not grow with its length.
class RunWatch {
 public:
  // Throws  InvalidInput if there is no such folder, or it is not a run's.
  explicit RunWatch(std::filesystem::path folder);

  // Reads what the run has written since the last call; empty if it has not finished a step yet.
  // `now`: time of the host's clock, to which those of the files are compared.
  //
  // Throws  InvalidInput naming the file, and for metrics.jsonl the line, that is not as expected.
  std::optional<RunProgress> look(std::chrono::system_clock::time_point now);

  [[nodiscard]] std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }

 private:
  struct Totals {  // of all rows
    std::int64_t rows = 0;
    std::int64_t skipped = 0;
    std::optional<RunRow> last_skipped;
    std::optional<RunRow> last;  // that was not skipped
    std::string drift_warning;
    std::optional<double> first_loss;
    std::optional<double> lowest_loss;
    std::int64_t next_step = 0;
    std::optional<std::int64_t> steps;
    double elapsed_s = 0;
    bool cut = false;  // the last line
    LossCurve losses;
    std::optional<ValidationRow> validation;
    std::map<std::pair<int, int>, LanePeak> peaks;  // by replica and lane, without limits
    std::deque<RunRow> recent;                      // the last 50 that were not skipped
  };

  void read_rows();
  void add(RunRow row);
  // config.json, plan.json and memory.json, where they have changed.
  void read_documents();
  void read_config(const std::filesystem::path& path);
  void read_plan(const std::filesystem::path& path);
  void read_states(const std::filesystem::path& path);
  [[nodiscard]] RunState state(std::chrono::system_clock::time_point now) const;
  void add_speed(RunProgress& progress) const;
  void add_memory(RunProgress& progress) const;
  [[nodiscard]] std::vector<LaneLoad> lanes() const;
  // "nothing was written for …"; empty while that is as usual.
  [[nodiscard]] std::string silence(std::chrono::system_clock::time_point now) const;
  void add_warnings(std::chrono::system_clock::time_point now, RunProgress& progress) const;

  std::filesystem::path folder_;
  RunRowsReader reader_;
  Totals totals_;
  std::map<std::string, std::filesystem::file_time_type> read_at_;  // by name of the document
  std::optional<std::int64_t> config_steps_;
  bool feeds_ = false;                // data.feed names some
  std::vector<std::string> stages_;   // [lane]
  std::vector<std::int64_t> limits_;  // [lane] bytes of activations; 0: none
  std::vector<std::int64_t> states_;  // bytes of each rank
};

}  // namespace entrain
