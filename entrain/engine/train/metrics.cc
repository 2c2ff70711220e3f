#include "entrain/engine/train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// Explains the columns of the console lines.
constexpr const char* kLegend =
    "memory: peak of this process so far; tps: tokens of the LLM per second of the "
    "step;\n"
    "bubble: idle share of all lanes; deferred: pieces whose LLM work is in a later slot";

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

Json lane_records(const StepRecord& record, const Timeline& predicted) {
  const Timeline& measured = record.measured;
  Json lanes = Json::array();
  for (std::size_t replica = 0; replica < measured.lanes.size(); ++replica) {
    for (std::size_t lane = 0; lane < measured.lanes[replica].size(); ++lane) {
      const LaneUsage& usage = measured.lanes[replica][lane];
      const double makespan = seconds(measured.makespan);
      lanes.push_back({{"replica", replica},
                       {"lane", lane},
                       {"busy_s", seconds(usage.busy)},
                       {"predicted_busy_s", seconds(predicted.lanes.at(replica).at(lane).busy)},
                       {"processor_s", record.processor_s.at(replica).at(lane)},
                       {"bubble", makespan > 0 ? 1.0 - seconds(usage.busy) / makespan : 0.0}});
      if (usage.peak_bytes > 0) {
        lanes.back()["peak_bytes"] = usage.peak_bytes;
        lanes.back()["predicted_peak_bytes"] = predicted.lanes.at(replica).at(lane).peak_bytes;
      }
    }
  }
  return lanes;
}

void add_update(const StepRecord& record, Json& entry) {
  if (record.updated) {
    entry["grad_norm"] = record.gradient_norm;
    entry["learning_rate"] = record.learning_rate;
  }
}

Json drift_record(const DriftState& drift) {
  Json record = {{"lane_shares", drift.shares}, {"left", drift.left}};
  if (!drift.warning.empty()) {
    record["warning"] = drift.warning;
  }
  return record;
}

// A validation's row has the number of finished steps, a step's row its index; a resumed run
// writes both again from `step` on.
void cut_rows_from(const std::filesystem::path& path, std::int64_t step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return;
  }
  const std::string content = read_file(path);
  std::string kept;
  for (const std::string_view line : split(content, '\n')) {
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object() && row.contains("step") && row["step"].is_number_integer() &&
        row["step"].get<std::int64_t>() < step) {
      kept.append(line).push_back('\n');
    }
  }
  write_file(path, kept);
}

// "  data: 38 % of the step waiting, 6 more threads would do" where a rank waited long for its
// samples. `starting`: a first step, whose decoding includes the start of Python processes.
std::string data_wait(const StepRecord& record, bool starting) {
  constexpr double kNotable = 0.05;
  const double waited = seconds(record.data.waited);
  if (waited < kNotable * record.step_s || record.decode_threads < 1) {
    return "";
  }
  // Decoding that takes no longer than what the step computes.
  const double computing = std::max(record.step_s - waited, 1e-3 * record.step_s);
  const auto wanted = static_cast<int>(std::ceil(seconds(record.data.decoding) / computing));
  const int more = wanted - record.decode_threads;
  std::ostringstream text;
  text << "  data: " << std::lround(100 * waited / record.step_s) << " % of the step waiting";
  if (record.decoded.share_of(record.decoded.fed) > 0.5) {
    text << ", a feed of more workers would do";
  } else if (more > 0 && !starting) {
    text << ", " << more << " more decode thread" << (more == 1 ? "" : "s") << " would do";
  }
  return text.str();
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& folder,
                       std::int64_t steps,
                       std::int64_t console_every,
                       std::optional<std::int64_t> continue_at,
                       MetricsContent content,
                       std::function<std::chrono::steady_clock::time_point()> now)
    : path_(folder / "metrics.jsonl"),
      steps_(steps),
      console_every_(console_every),
      content_(content),
      coloured_(::isatty(STDOUT_FILENO) == 1),
      now_(std::move(now)),
      first_step_(continue_at.value_or(0)),
      started_(now_()) {
  if (continue_at.has_value()) {
    cut_rows_from(path_, *continue_at);
  }
  errno = 0;
  file_.open(path_, continue_at.has_value() ? std::ios::app : std::ios::trunc);
  if (!file_) {
    throw SystemFailure(concat("cannot write '", path_.string(), "': ", std::strerror(errno)));
  }
}

void MetricsLog::step(const PreparedStep& prepared, const StepRecord& record) {
  const double predicted_s = seconds(prepared.predicted.makespan);
  std::size_t deferred = 0;
  std::int64_t chunks = 0;
  Json num_slots = Json::array();
  for (const ReplicaAssignment& replica : prepared.assignment.replicas) {
    deferred += deferrals(replica).size();
    chunks += num_chunks(replica);
    num_slots.push_back(replica.num_slots);
  }
  Json entry = {{"step", record.step},
                {"steps", steps_},
                {"loss", record.loss},
                {"samples", prepared.batch.size()},
                {"llm_tokens", prepared.llm_tokens},
                {"encoder_tokens", prepared.encoder_tokens},
                {"target_tokens", prepared.target_tokens},
                {"step_s", record.step_s},
                {"predicted_step_s", predicted_s},
                {"lower_bound_s", prepared.assignment.stats.lower_bound_s},
                {"bubble", bubble_fraction(record.measured)},
                {"predicted_bubble", bubble_fraction(prepared.predicted)},
                {"assign_ms", prepared.assignment.stats.assign_ms},
                {"num_slots", num_slots},
                {"deferred", deferred},
                {"chunks", chunks},
                {"data_wait_s", seconds(record.data.waited)},
                {"decode_s", seconds(record.data.decoding)},
                {"decoded", to_json(record.decoded)},
                {"lanes", lane_records(record, prepared.predicted)}};
  if (record.gap_s.has_value()) {
    entry["gap_s"] = *record.gap_s;
    entry["assign_wait_s"] = record.assign_wait_s;
  }
  if (content_.fed) {
    entry["fed"] = record.decoded.share_of(record.decoded.fed);
  }
  if (record.decoded.shared > 0) {
    entry["shared"] = record.decoded.share_of(record.decoded.shared);
  }
  if (record.expected_s.has_value()) {
    entry["expected_step_s"] = *record.expected_s;
  }
  add_update(record, entry);
  if (content_.samples) {
    entry["batch"] = prepared.sample_ids;
  }
  if (record.drift.has_value()) {
    entry["drift"] = drift_record(*record.drift);
    if (!record.drift->warning.empty()) {
      std::fputs(concat("entrain: warning: ", record.drift->warning, "\n").c_str(), stderr);
    }
  }
  write(entry);
  constexpr std::chrono::minutes kLongest(1);
  if (!shown_.has_value() || record.step % console_every_ == 0 || record.step + 1 == steps_ ||
      now_() - *shown_ >= kLongest) {
    show(prepared, record, deferred);
  }
  if (record.step > first_step_) {
    data_rates_.add(record.decoded, record.step_s - seconds(record.data.waited));
  }
  if (const auto rates = data_rates_.line_once(record.step + 1 == steps_)) {
    note(*rates);
  }
}

void MetricsLog::show(const PreparedStep& prepared,
                      const StepRecord& record,
                      std::size_t deferred) {
  if (!shown_.has_value()) {
    note(kLegend);
  }
  shown_ = now_();
  // A step shorter than the clock's tick has no rate.
  const double rate =
      record.step_s > 0 ? static_cast<double>(prepared.llm_tokens) / record.step_s : 0;
  std::ostringstream line;
  const char* dim = coloured_ ? "\x1b[36m" : "";
  const char* bold = coloured_ ? "\x1b[32m" : "";
  const char* reset = coloured_ ? "\x1b[0m" : "";
  line << std::fixed << "step: " << std::setw(4) << record.step << "/" << steps_ << "  " << bold
       << "loss: " << std::setprecision(4) << std::setw(7) << record.loss << reset
       << "  grad_norm: " << std::setprecision(3) << std::setw(6) << record.gradient_norm
       << "  memory: " << format_bytes(peak_resident_bytes())
       << "  tps: " << format_count(static_cast<std::int64_t>(rate)) << "  " << dim
       << "step: " << std::setprecision(0) << record.step_s * 1e3 << " ms (predicted "
       << seconds(prepared.predicted.makespan) * 1e3;
  if (record.expected_s.has_value()) {
    line << ", at this run's speed " << *record.expected_s * 1e3;
  }
  line << ")  bubble: " << std::setprecision(2) << bubble_fraction(record.measured)
       << "  deferred: " << deferred << reset << data_wait(record, record.step == first_step_)
       << "  "
       << format_elapsed(*shown_ - started_, record.step + 1 - first_step_, steps_ - first_step_)
       << "\n";
  std::fputs(line.str().c_str(), stdout);
  std::fflush(stdout);
}

void MetricsLog::skipped(const PreparedStep& prepared, const StepRecord& record) {
  const SkippedStep& why = record.skipped.value();
  Json entry = {{"step", prepared.step},
                {"skipped", why.cause},
                {"detail", why.detail},
                {"skipped_steps", record.skipped_steps},
                {"samples", prepared.batch.size()}};
  add_update(record, entry);
  if (record.drift.has_value()) {
    entry["drift"] = drift_record(*record.drift);
  }
  write(entry);
  std::fputs(concat("entrain: warning: step ",
                    prepared.step,
                    record.updated ? " skipped, the update was made without it ("
                                   : " skipped, no update was made (",
                    why.cause,
                    "): ",
                    why.detail,
                    "\n")
                 .c_str(),
             stderr);
}

void MetricsLog::validation(std::int64_t step, double loss, std::int64_t patches) {
  write({{"step", step}, {"validation_loss", loss}, {"patches", patches}});
  note(concat("step: ", step, "  validation loss: ", loss));
}

void MetricsLog::note(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void MetricsLog::write(const Json& line) {
  file_ << json_text(line) << "\n";
  file_.flush();
  if (!file_) {
    throw SystemFailure(concat("cannot write '", path_.string(), "': ", std::strerror(errno)));
  }
}

}  // namespace entrain::engine
