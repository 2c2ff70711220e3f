#include "entrain/engine/train/step_exports.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// Collectors read every 15 s or so; a file is synchronised to disk each time.
constexpr std::chrono::seconds kBetweenFiles(1);

double in_seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

Scalars scalars_of(const RunRow& row) {
  Scalars scalars;
  const auto add = [&](const char* tag, const std::optional<double>& value) {
    if (value.has_value()) {
      scalars.emplace_back(tag, *value);
    }
  };
  add("loss", row.loss);
  add("grad_norm", row.grad_norm);
  add("learning_rate", row.learning_rate);
  add("step_s", row.step_s);
  if (row.llm_tokens.has_value() && row.step_s.value_or(0) > 0) {
    add("llm_tokens_per_s", static_cast<double>(*row.llm_tokens) / *row.step_s);
  }
  add("bubble", row.bubble);
  add("data_wait_s", row.data_wait_s);
  return scalars;
}

}  // namespace

RunRow run_row(const PreparedStep& prepared, const StepRecord& record) {
  RunRow row;
  row.step = prepared.step;
  if (record.updated) {
    row.grad_norm = record.gradient_norm;
    row.learning_rate = record.learning_rate;
  }
  if (record.skipped.has_value()) {
    row.skipped = record.skipped->cause;
    return row;
  }
  row.loss = record.loss;
  row.step_s = record.step_s;
  row.predicted_step_s = in_seconds(prepared.predicted.makespan);
  row.lower_bound_s = prepared.assignment.stats.lower_bound_s;
  row.llm_tokens = prepared.llm_tokens;
  row.bubble = bubble_fraction(record.measured);
  row.data_wait_s = in_seconds(record.data.waited);
  const auto& replicas = record.measured.lanes;
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    for (std::size_t lane = 0; lane < replicas[replica].size(); ++lane) {
      const LaneUsage& usage = replicas[replica][lane];
      LaneRow entry;
      entry.replica = static_cast<int>(replica);
      entry.lane = static_cast<int>(lane);
      entry.busy_s = in_seconds(usage.busy);
      entry.predicted_busy_s = in_seconds(prepared.predicted.lanes.at(replica).at(lane).busy);
      if (usage.peak_bytes > 0) {
        entry.peak_bytes = usage.peak_bytes;
      }
      row.lanes.push_back(entry);
    }
  }
  return row;
}

StepExports::StepExports(const RunConfig& config, std::int64_t first_step)
    : exposition_(config.metrics.prometheus) {
  totals_.run = config.output;
  totals_.steps = config.steps;
  if (!exposition_.empty()) {
    write_file(exposition_, "");  // a place that cannot be written is known before the first step
  }
  if (config.metrics.tensorboard) {
    events_.emplace(std::filesystem::path(config.output) / kTensorboardName, first_step);
  }
}

StepExports::~StepExports() {
  if (pending_) {
    write_exposition();
  }
}

void StepExports::step(const PreparedStep& prepared, const StepRecord& record) {
  if (!events_.has_value() && exposition_.empty()) {
    return;
  }
  row_ = run_row(prepared, record);
  totals_.skipped = record.skipped_steps;
  totals_.finished_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (events_.has_value()) {
    if (const Scalars scalars = scalars_of(row_); !scalars.empty()) {
      events_->add(row_.step, scalars);
    }
  }
  pending_ = !exposition_.empty();
  const auto now = std::chrono::steady_clock::now();
  if (pending_ && (!written_.has_value() || now - *written_ >= kBetweenFiles)) {
    write_exposition();
  }
}

void StepExports::validation(std::int64_t step, double loss) {
  totals_.validation = ValidationRow{step, loss};
  if (events_.has_value()) {
    events_->add(step, {{"validation_loss", loss}});
  }
  // With the next step or at the end; there is no row before the first step.
  pending_ = !exposition_.empty() && totals_.finished_s > 0;
}

// A full disk for a monitor's file is no reason to end a run.
void StepExports::write_exposition() {
  try {
    write_file(exposition_, exposition(row_, totals_));
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true)) {
      std::fputs(concat("entrain: warning: ", error.what(), "\n").c_str(), stderr);
    }
  }
  written_ = std::chrono::steady_clock::now();
  pending_ = false;
}

}  // namespace entrain::engine
