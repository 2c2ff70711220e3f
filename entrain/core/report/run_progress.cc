#include "entrain/core/report/run_progress.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/folder_lock.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/statistics.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;
using WallTime = std::chrono::system_clock::time_point;

constexpr std::size_t kRecentSteps = 50;
// A lock whose process is on another host is refreshed every five seconds.
constexpr std::chrono::seconds kLockSilence(90);

std::string clock_text(double seconds) {
  return format_clock(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

// The value that at least `share` of `values` do not exceed; empty of none.
std::optional<double> value_at(std::vector<double> values, double share) {
  return values.empty() ? std::nullopt : std::optional(percentile(std::move(values), share));
}

std::vector<double> known_values(const std::deque<RunRow>& rows,
                                 std::optional<double> RunRow::*key) {
  std::vector<double> values;
  for (const RunRow& row : rows) {
    if ((row.*key).has_value()) {
      values.push_back(*(row.*key));
    }
  }
  return values;
}

// Seconds since the file was written; empty if there is none.
std::optional<double> age_of(const fs::path& path, WallTime now) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  if (error) {
    return std::nullopt;
  }
  const auto written = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(now - written).count();
}

double row_seconds(const RunRow& row) {
  return row.step_s.value_or(0) + row.gap_s.value_or(0);
}

}  // namespace

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kEnded:
      return "ended early";
    case RunState::kOver:
      break;
  }
  return "not running";
}

void LossCurve::add(double loss) {
  if (means_.empty() || means_.back().count == steps_each_) {
    means_.emplace_back();
  }
  means_.back().sum += loss;
  ++means_.back().count;
  if (means_.size() <= kMostPoints) {
    return;
  }
  std::vector<Mean> pairs((means_.size() + 1) / 2);
  for (std::size_t i = 0; i < means_.size(); ++i) {
    pairs[i / 2].sum += means_[i].sum;
    pairs[i / 2].count += means_[i].count;
  }
  means_ = std::move(pairs);
  steps_each_ *= 2;
}

std::vector<double> LossCurve::points() const {
  std::vector<double> points;
  for (const Mean& mean : means_) {
    points.push_back(mean.sum / static_cast<double>(mean.count));
  }
  return points;
}

RunWatch::RunWatch(fs::path folder) : folder_(std::move(folder)), reader_(metrics()) {
  std::error_code error;
  if (!fs::is_directory(folder_, error)) {
    throw InvalidInput(fmt::format("run: there is no folder '{}'", folder_.string()));
  }
  for (const char* name : {"config.json", "metrics.jsonl", kLockName}) {
    if (fs::exists(folder_ / name, error)) {
      return;
    }
  }
  throw InvalidInput(
      fmt::format("run: '{}' is not a run folder: it holds neither config.json nor metrics.jsonl",
                  folder_.string()));
}

std::optional<RunProgress> RunWatch::look(WallTime now) {
  read_documents();
  std::error_code error;
  if (!fs::exists(metrics(), error)) {
    totals_ = {};
    return std::nullopt;
  }
  read_rows();
  if (totals_.rows == 0) {
    return std::nullopt;
  }
  RunProgress progress;
  progress.run = folder_.string();
  progress.step = totals_.next_step;
  progress.steps = totals_.steps.has_value() ? totals_.steps : config_steps_;
  progress.state = state(now);
  progress.elapsed_s = totals_.elapsed_s;
  progress.first_loss = totals_.first_loss;
  progress.lowest_loss = totals_.lowest_loss;
  progress.losses = totals_.losses.points();
  progress.validation = totals_.validation;
  if (totals_.last.has_value()) {
    progress.loss = totals_.last->loss;
    progress.bubble = totals_.last->bubble;
  }
  add_speed(progress);
  add_memory(progress);
  progress.lanes = lanes();
  add_warnings(now, progress);
  return progress;
}

void RunWatch::read_rows() {
  for (bool more = true; more;) {
    RunRowsReader::News news = reader_.read();
    if (news.replaced) {
      totals_ = {};
    }
    for (RunRow& row : news.rows.steps) {
      add(std::move(row));
    }
    if (!news.rows.validations.empty()) {
      totals_.validation = news.rows.validations.back();
    }
    totals_.cut = news.rows.cut_lines > 0;
    more = news.more;
  }
}

void RunWatch::add(RunRow row) {
  ++totals_.rows;
  totals_.next_step = row.step + 1;
  totals_.elapsed_s += row_seconds(row);
  totals_.steps = row.steps.has_value() ? row.steps : totals_.steps;
  if (row.skipped.has_value()) {
    ++totals_.skipped;
    totals_.last_skipped = std::move(row);
    return;
  }
  if (row.loss.has_value()) {
    totals_.losses.add(*row.loss);
    totals_.first_loss = totals_.first_loss.value_or(*row.loss);
    totals_.lowest_loss = std::min(totals_.lowest_loss.value_or(*row.loss), *row.loss);
  }
  if (!row.drift_warning.empty()) {
    totals_.drift_warning = row.drift_warning;
  }
  for (const LaneRow& lane : row.lanes) {
    LanePeak& peak = totals_.peaks[{lane.replica, lane.lane}];
    if (lane.peak_bytes.value_or(0) > peak.bytes) {
      peak = {lane.replica, lane.lane, row.step, *lane.peak_bytes, 0};
    }
  }
  totals_.last = row;
  totals_.recent.push_back(std::move(row));
  totals_.recent.back().lanes.clear();
  if (totals_.recent.size() > kRecentSteps) {
    totals_.recent.pop_front();
  }
}

void RunWatch::read_documents() {
  const auto read_changed = [&](const char* name, void (RunWatch::*read)(const fs::path&)) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(folder_ / name, error);
    const auto before = read_at_.find(name);
    if (!error && (before == read_at_.end() || before->second != time)) {
      (this->*read)(folder_ / name);
      read_at_[name] = time;
    }
  };
  read_changed("config.json", &RunWatch::read_config);
  read_changed("plan.json", &RunWatch::read_plan);
  read_changed("memory.json", &RunWatch::read_states);
}

void RunWatch::read_config(const fs::path& path) {
  const Json document = read_json_file(path);
  ObjectReader config(document, path.string());
  const Json* steps = config.find("steps");  // none if it has epochs
  config_steps_ = steps == nullptr
                      ? std::nullopt
                      : std::optional(value_as<std::int64_t>(*steps, config.where("steps")));
  feeds_ = config.has("data") && !config.object("data").array("feed").empty();
}

void RunWatch::read_plan(const fs::path& path) {
  const Json document = read_json_file(path);
  ObjectReader plan(document, path.string());
  stages_.clear();
  for (const auto& [lane, lane_where] : plan.array("lanes")) {
    std::vector<std::string> names;
    for (const auto& [stage, where] : elements_of(*lane, lane_where)) {
      const auto parts = elements_of(*stage, where);
      if (parts.size() != 2) {
        throw InvalidInput(fmt::format("{}: not a stage as [module, number]", where));
      }
      names.push_back(fmt::format("{} {}",
                                  value_as<std::string>(*parts[0].first, parts[0].second),
                                  value_as<std::int64_t>(*parts[1].first, parts[1].second)));
    }
    stages_.push_back(join(names));
  }
  limits_.assign(stages_.size(), 0);
  if (plan.has("limits")) {
    ObjectReader limits = plan.object("limits");
    limits_.assign(stages_.size(), limits.optional<std::int64_t>("bytes_per_lane", 0));
    const auto of_lanes = limits.array("lane_bytes");
    for (std::size_t lane = 0; lane < std::min(of_lanes.size(), limits_.size()); ++lane) {
      limits_[lane] = value_as<std::int64_t>(*of_lanes[lane].first, of_lanes[lane].second);
    }
  }
}

void RunWatch::read_states(const fs::path& path) {
  const Json document = read_json_file(path);
  states_.clear();
  for (const auto& [rank, where] : elements_of(document, path.string())) {
    ObjectReader reader(*rank, where);
    states_.push_back(reader.required<std::int64_t>("parameter_bytes") +
                      reader.required<std::int64_t>("gradient_bytes") +
                      reader.required<std::int64_t>("optimizer_bytes"));
  }
}

RunState RunWatch::state(WallTime now) const {
  const fs::path lock = folder_ / kLockName;
  const std::optional<double> age = age_of(lock, now);
  const bool held = age.has_value() && dead_holders(folder_).empty() &&
                    *age < std::chrono::duration<double>(kLockSilence).count();
  if (held) {
    return RunState::kRunning;
  }
  const std::optional<std::int64_t> steps =
      totals_.steps.has_value() ? totals_.steps : config_steps_;
  if (!steps.has_value()) {
    return RunState::kOver;
  }
  return totals_.next_step < *steps ? RunState::kEnded : RunState::kFinished;
}

void RunWatch::add_speed(RunProgress& progress) const {
  const std::deque<RunRow>& recent = totals_.recent;
  const std::vector<double> times = known_values(recent, &RunRow::step_s);
  progress.step_s = value_at(times, 0.5);
  progress.p95_step_s = value_at(times, 0.95);
  progress.predicted_step_s = value_at(known_values(recent, &RunRow::predicted_step_s), 0.5);
  progress.lower_bound_s = value_at(known_values(recent, &RunRow::lower_bound_s), 0.5);
  const double total = std::accumulate(times.begin(), times.end(), 0.0);
  if (total > 0) {
    const auto rate = [&](std::optional<std::int64_t> RunRow::*key) {
      double sum = 0;
      for (const RunRow& row : recent) {
        sum += static_cast<double>((row.*key).value_or(0));
      }
      return sum / total;
    };
    const std::vector<double> waits = known_values(recent, &RunRow::data_wait_s);
    progress.llm_tokens_per_s = rate(&RunRow::llm_tokens);
    progress.samples_per_s = rate(&RunRow::samples);
    progress.data_wait = std::accumulate(waits.begin(), waits.end(), 0.0) / total;
  }
  if (progress.steps.has_value() && !recent.empty() && progress.state == RunState::kRunning) {
    double spent = 0;
    for (const RunRow& row : recent) {
      spent += row_seconds(row);
    }
    const auto left =
        static_cast<double>(std::max<std::int64_t>(0, *progress.steps - progress.step));
    progress.remaining_s = left * spent / static_cast<double>(recent.size());
  }
}

void RunWatch::add_memory(RunProgress& progress) const {
  if (!states_.empty()) {
    progress.state_bytes = std::ranges::max(states_);
    progress.total_bytes = std::accumulate(states_.begin(), states_.end(), std::int64_t{0});
  }
  for (auto [place, peak] : totals_.peaks) {
    if (peak.lane >= 0 && peak.lane < std::ssize(limits_)) {
      peak.limit_bytes = limits_[at(peak.lane)];
    }
    const auto rank = [](const LanePeak& of) { return std::pair(of.of_limit(), of.bytes); };
    if (peak.bytes > 0 &&
        (!progress.highest_peak.has_value() || rank(peak) > rank(*progress.highest_peak))) {
      progress.highest_peak = peak;
    }
  }
  if (!totals_.last.has_value()) {
    return;
  }
  for (const LaneRow& lane : totals_.last->lanes) {
    if (lane.peak_bytes.value_or(-1) > progress.peak_bytes.value_or(-1)) {
      progress.peak_bytes = lane.peak_bytes;
      progress.predicted_peak_bytes = lane.predicted_peak_bytes;
    }
  }
}

std::vector<LaneLoad> RunWatch::lanes() const {
  std::vector<LaneLoad> loads;
  if (!totals_.last.has_value()) {
    return loads;
  }
  const auto share = [](double part, std::optional<double> whole) {
    return whole.value_or(0) > 0 ? std::clamp(part / *whole, 0.0, 1.0) : 0.0;
  };
  for (const LaneRow& row : totals_.last->lanes) {
    const bool known = row.lane >= 0 && row.lane < std::ssize(stages_);
    loads.push_back({row.replica,
                     row.lane,
                     known ? stages_[static_cast<std::size_t>(row.lane)] : "",
                     share(row.busy_s, totals_.last->step_s),
                     share(row.predicted_busy_s, totals_.last->predicted_step_s)});
  }
  return loads;
}

std::string RunWatch::silence(WallTime now) const {
  const double silent_s = age_of(metrics(), now).value_or(0);
  std::vector<double> times;
  for (const RunRow& row : totals_.recent) {
    times.push_back(row_seconds(row));
  }
  constexpr double kAlwaysUsual = 10;
  // A validation or a checkpoint may be between two steps.
  constexpr double kTimesSlower = 5;
  if (silent_s <= std::max(kAlwaysUsual, kTimesSlower * value_at(times, 0.95).value_or(0))) {
    return "";
  }
  const double usual_s = value_at(times, 0.5).value_or(0);
  return fmt::format(
      "nothing was written for {}, and a step takes {}: the run validates, writes a checkpoint or "
      "hangs",
      clock_text(silent_s),
      format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(usual_s * 1e9))));
}

void RunWatch::add_warnings(WallTime now, RunProgress& progress) const {
  const auto warn = [&](bool holds, const auto& text) {
    if (holds) {
      progress.warnings.push_back(text());
    }
  };
  const bool running = progress.state == RunState::kRunning;
  warn(progress.state == RunState::kEnded, [&] {
    return fmt::format("the run ended after step {} of {}", progress.step, *progress.steps);
  });
  warn(totals_.cut && !running,
       [] { return "the last line of metrics.jsonl is cut off and left out"; });
  const std::string silent = running ? silence(now) : "";
  warn(!silent.empty(), [&] { return silent; });
  warn(totals_.skipped > 0, [&] {
    const RunRow& last = *totals_.last_skipped;
    return fmt::format(
        "{} skipped, the last is step {} ({}){}",
        totals_.skipped == 1 ? "1 step was" : format_count(totals_.skipped) + " steps were",
        last.step,
        *last.skipped,
        last.detail.empty() ? "" : ": " + last.detail);
  });
  const std::optional<RunRow>& last = totals_.last;
  warn(last.has_value() && !last->loss.has_value(),
       [&] { return fmt::format("the loss of step {} is not a number", last->step); });
  const std::optional<LanePeak>& peak = progress.highest_peak;
  warn(peak.has_value() && peak->of_limit() > 1, [&] {
    return fmt::format("lane {}:{} held {} of activations in step {}, above its limit of {}",
                       peak->replica,
                       peak->lane,
                       format_bytes(peak->bytes),
                       peak->step,
                       format_bytes(peak->limit_bytes));
  });
  constexpr double kNotableWait = 0.05;
  warn(progress.data_wait.value_or(0) >= kNotableWait, [&] {
    return fmt::format(
        "ranks wait for samples {:.0f} % of the step: more data.decode_threads or a feed may help, "
        "or fewer ranks where they outnumber the host's cores, which decoding shares with them",
        100 * *progress.data_wait);
  });
  warn(feeds_ && last.has_value() && last->fed.value_or(0) < 0.5, [&] {
    return fmt::format("data.feed is given, but feeds decoded {:.0f} % of the last step",
                       100 * last->fed.value_or(0));
  });
  warn(!totals_.drift_warning.empty(), [&] { return totals_.drift_warning; });
}

}  // namespace entrain
