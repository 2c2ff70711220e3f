#include "entrain/engine/train/run_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/report/trace.h"

#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/optimizer.h"

namespace entrain::engine {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The traced step, for Perfetto and for `entrain report`.
void write_step(const RunSetup& setup, const PreparedStep& prepared, const Timeline& measured) {
  const std::filesystem::path folder(setup.config.output);
  write_trace(folder / "trace_predicted.json",
              prepared.program,
              prepared.predicted,
              prepared.costs,
              prepared.sample_ids,
              "predicted");
  write_trace(folder / "trace_measured.json",
              prepared.program,
              measured,
              prepared.costs,
              prepared.sample_ids,
              "measured");
  StepViewRequest view;
  view.plan = &setup.plan;
  view.costs = &prepared.costs;
  view.program = &prepared.program;
  view.predicted = &prepared.predicted;
  view.measured = &measured;
  view.sample_ids = &prepared.sample_ids;
  view.bound =
      std::chrono::nanoseconds(std::llround(1e9 * prepared.assignment.stats.lower_bound_s));
  view.step = prepared.step;
  write_file(folder / kStepViewName, step_view(view).dump() + "\n");
}

}  // namespace

RunRecord::RunRecord(const RunSetup& setup, std::int64_t first_step)
    : setup_(setup),
      first_step_(first_step),
      metrics_(setup.config.output,
               setup.config.steps,
               std::max<std::int64_t>(1, setup.config.steps / 40),
               setup.resume.has_value() && setup.resume->continues ? std::optional(first_step)
                                                                   : std::nullopt,
               {.samples = setup.config.execution.log_samples,
                .fed = !setup.config.data.feed.empty() && !setup.config.execution.paced}),
      exports_(setup.config, first_step),
      drift_(DriftWatch::of(setup)) {}

void RunRecord::begin(const std::string& set_aside, bool in_processes) {
  const RankPlaces places(setup_.plan);
  if (!set_aside.empty()) {
    note(set_aside);
  }
  note_resume();
  note(concat(counted(setup_.plan.replicas, "replica"),
              " x ",
              counted(setup_.plan.num_lanes(), "lane"),
              places.ranks_per_replica() > setup_.plan.num_lanes()
                  ? concat(" on ", counted(places.num_ranks(), "rank"))
                  : std::string(),
              ", policy ",
              setup_.plan.policy,
              ", schedule ",
              setup_.plan.schedule,
              ", global batch ",
              setup_.config.data.global_batch,
              in_processes ? ", a process each" : ""));
  note(epoch_note(setup_));
  note(costs_note(setup_));
  if (drift_.has_value() && !drift_->note().empty()) {
    note(drift_->note());
  }
  replay_drift();
}

// The watch's state at the checkpoint; it keeps only these steps.
void RunRecord::replay_drift() {
  constexpr std::int64_t kReplayed = 1'000;
  for (std::int64_t step = std::max<std::int64_t>(0, first_step_ - kReplayed);
       drift_.has_value() && step < first_step_;
       ++step) {
    drift_->observe(costs_of_step(setup_, step));  // warnings were shown before
  }
}

void RunRecord::note_resume() {
  if (!setup_.resume.has_value()) {
    return;
  }
  const ResumePoint& resume = *setup_.resume;
  note(concat("resumed at step ",
              first_step_,
              " of ",
              setup_.config.steps,
              " from '",
              resume.checkpoint.string(),
              "'"));
  for (const std::string& line : resume.notes) {
    note("resumed: " + line);
  }
}

void RunRecord::step(const PreparedStep& prepared, StepRecord record) {
  record.loss /= static_cast<double>(prepared.target_tokens);
  const int every = setup_.config.optimizer.update_every;
  record.learning_rate =
      learning_rate_at(setup_.config.optimizer, prepared.step / every, setup_.config.steps / every);
  if (record.skipped.has_value() && record.skipped->detail.empty()) {
    record.skipped->detail = concat("loss ", record.loss, ", gradient norm ", record.gradient_norm);
  }
  const bool forgiven = record.skipped.has_value() && record.skipped->cause == "nan";
  if (!setup_.config.execution.paced && !forgiven &&
      (!std::isfinite(record.loss) || !std::isfinite(record.gradient_norm))) {
    throw SystemFailure(
        concat("step ",
               prepared.step,
               ": loss ",
               record.loss,
               ", gradient norm ",
               record.gradient_norm,
               "; the run stops before it spreads (lower optimizer.learning_rate?)"));
  }
  if (drift_.has_value()) {
    record.drift = drift_->observe(prepared.costs);
  }
  if (record.skipped.has_value()) {
    metrics_.skipped(prepared, record);
    ++skipped_;
  } else {
    record.expected_s = speed_.expected_s(prepared.predicted);
    metrics_.step(prepared, record);
    double processor_s = 0;
    for (const std::vector<double>& lanes : record.processor_s) {
      processor_s = std::accumulate(lanes.begin(), lanes.end(), processor_s);
    }
    const std::string advice = speed_.observe(prepared.predicted, record.measured, processor_s);
    if (!advice.empty() && !setup_.config.execution.paced) {  // a paced run does not compute
      note(advice);
    }
    losses_.push_back(record.loss);
    step_seconds_.push_back(record.step_s);
    predicted_seconds_.push_back(
        std::chrono::duration<double>(prepared.predicted.makespan).count());
  }
  exports_.step(prepared, record);
  if (prepared.step == setup_.config.execution.trace_step && !record.skipped.has_value()) {
    write_step(setup_, prepared, record.measured);
  }
}

void RunRecord::validation(std::int64_t step, double loss, std::int64_t patches) {
  validation_loss_ = loss;
  metrics_.validation(step, loss, patches);
  exports_.validation(step, loss);
}

RunFigures RunRecord::figures() const {
  RunFigures figures;
  figures.steps = std::ssize(losses_) + skipped_;
  figures.skipped = skipped_;
  if (!losses_.empty()) {
    figures.first_loss = losses_.front();
    const std::size_t tail = std::min<std::size_t>(10, losses_.size());
    figures.last_loss =
        std::accumulate(losses_.end() - static_cast<std::ptrdiff_t>(tail), losses_.end(), 0.0) /
        static_cast<double>(tail);
  }
  figures.validation_loss = validation_loss_;
  figures.median_step_s = median(step_seconds_);
  figures.median_predicted_s = median(predicted_seconds_);
  return figures;
}

}  // namespace entrain::engine
