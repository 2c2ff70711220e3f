#include "entrain/engine/train/run_state.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/trace.h"
#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/models/weights.h"
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

void write_traces(const Run& run, const PreparedStep& prepared, const Timeline& measured) {
  const std::filesystem::path folder(run.setup.config.output);
  SimulateOptions options;
  options.events = true;
  const Timeline predicted = simulate(prepared.program, prepared.costs, options);
  write_trace(folder / "trace_predicted.json",
              prepared.program,
              predicted,
              prepared.costs,
              prepared.sample_ids,
              "predicted");
  write_trace(folder / "trace_measured.json",
              prepared.program,
              measured,
              prepared.costs,
              prepared.sample_ids,
              "measured");
}

// What the watch had gathered before the checkpoint; older steps than these are forgotten.
void replay_drift(Run& run) {
  constexpr std::int64_t kReplayed = 1'000;
  for (std::int64_t step = std::max<std::int64_t>(0, run.first_step - kReplayed);
       run.drift.has_value() && step < run.first_step;
       ++step) {
    run.drift->observe(costs_of_step(run.setup, step));  // its warnings have been given
  }
}

void note_resume(Run& run) {
  if (!run.setup.resume.has_value()) {
    return;
  }
  const ResumePoint& resume = *run.setup.resume;
  run.metrics->note(concat("resumed at step ",
                           run.first_step,
                           " of ",
                           run.setup.config.steps,
                           " from '",
                           resume.checkpoint.string(),
                           "'"));
  for (const std::string& note : resume.notes) {
    run.metrics->note("resumed: " + note);
  }
}

}  // namespace

Run::Run(const RunSetup& run_setup,
         const std::atomic<bool>& flag,
         const TrainEvents& train_events,
         Comm* process)
    : setup(run_setup),
      places(run_setup.plan),
      interrupted(flag),
      events(train_events),
      in_processes(process != nullptr),
      first_step(run_setup.resume.has_value() ? run_setup.resume->manifest.step : 0),
      source(run_setup,
             first_step,
             run_setup.config.steps,
             process != nullptr ? 1 : places.num_ranks()),
      dumps(run_setup.config.output,
            run_setup.plan,
            process != nullptr ? process->rank() : 0,
            process != nullptr ? 1 : places.num_ranks()),
      validation(prepare_validation(run_setup)),
      lane_parameters(static_cast<std::size_t>(run_setup.plan.num_lanes())) {
  const RunConfig& config = run_setup.config;
  const int rank = process != nullptr ? process->rank() : 0;
  if (rank == 0) {
    const bool continues = run_setup.resume.has_value() && run_setup.resume->continues;
    metrics.emplace(config.output,
                    config.steps,
                    std::max<std::int64_t>(1, config.steps / 40),
                    continues ? std::optional(first_step) : std::nullopt,
                    config.execution.log_samples);
    drift = DriftWatch::of(run_setup);
  }
  if (process != nullptr) {
    log = RankLog(config.output, rank);
  }
  const RankPlace place = places.place_of(rank);
  if (!config.execution.paced && place.replica == 0 && place.tensor_rank == 0) {
    checkpoints.emplace(checkpoint_folder(config),
                        config.checkpoint.keep,
                        run_setup.plan.num_lanes(),
                        run_setup.identity,
                        process != nullptr ? std::optional(place.lane) : std::nullopt,
                        std::chrono::milliseconds(
                            static_cast<std::int64_t>(1e3 * config.execution.deadline_seconds)),
                        events.check_others);
  }
}

std::string open_folder(const RunSetup& setup) {
  const std::filesystem::path folder(setup.config.output);
  const std::string note = prepare_folders(setup.config, setup.resume);
  keep_dumps(folder);
  write_file(folder / "config.json", to_json(setup.config).dump(1) + "\n");
  write_file(folder / "plan.json", to_json(setup.plan).dump(1) + "\n");
  write_file(folder / "model.json", to_json(setup.model).dump(1) + "\n");
  return note;
}

void announce(Run& run, const std::string& set_aside) {
  const RunSetup& setup = run.setup;
  if (!set_aside.empty()) {
    run.metrics->note(set_aside);
  }
  note_resume(run);
  run.metrics->note(concat(setup.plan.replicas,
                           " replicas x ",
                           setup.plan.num_lanes(),
                           run.places.ranks_per_replica() > setup.plan.num_lanes()
                               ? concat(" lanes on ", run.places.num_ranks(), " ranks")
                               : std::string(" lanes"),
                           ", policy ",
                           setup.plan.policy,
                           ", schedule ",
                           setup.plan.schedule,
                           ", global batch ",
                           setup.config.data.global_batch,
                           run.in_processes ? ", a process each" : ""));
  run.metrics->note(epoch_note(setup));
  if (run.drift.has_value() && !run.drift->note().empty()) {
    run.metrics->note(run.drift->note());
  }
  replay_drift(run);
}

void finish_step(Run& run, const PreparedStep& prepared, StepRecord record) {
  record.loss /= static_cast<double>(prepared.target_tokens);
  const int every = run.setup.config.optimizer.update_every;
  record.learning_rate = learning_rate_at(
      run.setup.config.optimizer, prepared.step / every, run.setup.config.steps / every);
  if (record.skipped.has_value() && record.skipped->detail.empty()) {
    record.skipped->detail = concat("loss ", record.loss, ", gradient norm ", record.gradient_norm);
  }
  const bool forgiven = record.skipped.has_value() && record.skipped->cause == "nan";
  if (!run.setup.config.execution.paced && !forgiven &&
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
  if (run.drift.has_value()) {
    record.drift = run.drift->observe(prepared.costs);
  }
  if (record.skipped.has_value()) {
    run.metrics->skipped(prepared, record);
    ++run.skipped;
  } else {
    record.expected_s = run.speed.expected_s(prepared.predicted);
    run.metrics->step(prepared, record);
    double processor_s = 0;
    for (const std::vector<double>& lanes : record.processor_s) {
      processor_s = std::accumulate(lanes.begin(), lanes.end(), processor_s);
    }
    const std::string advice = run.speed.observe(prepared.predicted, record.measured, processor_s);
    if (!advice.empty() && !run.setup.config.execution.paced) {  // a paced run does not compute
      run.metrics->note(advice);
    }
    run.losses.push_back(record.loss);
    run.step_seconds.push_back(record.step_s);
    run.predicted_seconds.push_back(
        std::chrono::duration<double>(prepared.predicted.makespan).count());
  }
  if (prepared.step == run.setup.config.execution.trace_step && !record.skipped.has_value()) {
    write_traces(run, prepared, record.measured);
  }
  if (run.checkpoints.has_value()) {
    run.checkpoints->check();
    run.checkpoints->approve(prepared.step + 1);
  }
}

TrainResult result_of(const Run& run) {
  TrainResult result;
  result.steps = static_cast<std::int64_t>(run.losses.size()) + run.skipped;
  result.skipped = run.skipped;
  result.first_step = run.first_step;
  result.interrupted = run.stopped;
  if (!run.losses.empty()) {
    result.first_loss = run.losses.front();
    const std::size_t tail = std::min<std::size_t>(10, run.losses.size());
    result.last_loss =
        std::accumulate(
            run.losses.end() - static_cast<std::ptrdiff_t>(tail), run.losses.end(), 0.0) /
        static_cast<double>(tail);
  }
  if (!run.validation_losses.empty()) {
    result.validation_loss = run.validation_losses.back();
  }
  result.median_step_s = median(run.step_seconds);
  result.median_predicted_s = median(run.predicted_seconds);
  return result;
}

void write_all_weights(Run& run, TrainResult& result) {
  std::vector<NamedParameter> parameters;
  for (const auto& lane : run.lane_parameters) {
    parameters.insert(parameters.end(), lane.begin(), lane.end());
  }
  const std::filesystem::path path = std::filesystem::path(run.setup.config.output) / kWeightsName;
  const auto finish = [&] {
    run.checkpoints->finish();
    result.checkpoint = run.checkpoints->last_written();
  };
  if (result.interrupted) {
    finish();
  }
  std::map<std::string, std::string> metadata;
  if (!result.interrupted) {
    metadata[kStepKey] = std::to_string(run.setup.config.steps);
  }
  write_weights(path, parameters, metadata);
  result.weights = path;
  finish();
}

void write_weights_together(Run& run, Comm& comm, TrainResult& result) {
  const RunSetup& setup = run.setup;
  const std::filesystem::path parts(std::filesystem::path(setup.config.output) /
                                    ".weights.partial");
  const auto part = [&](int lane) { return parts / concat("lane-", lane, ".safetensors"); };
  const bool leads = comm.rank() == 0;
  // The barrier also says that the others' part of the last checkpoint is written.
  if (run.checkpoints.has_value() && !leads) {
    run.checkpoints->finish();
    const int lane = run.places.place_of(comm.rank()).lane;
    write_weights(part(lane), run.lane_parameters[static_cast<std::size_t>(lane)]);
  }
  comm.barrier(run.places.all());
  if (leads && !setup.config.execution.paced) {
    for (int lane = 1; lane < setup.plan.num_lanes(); ++lane) {
      run.lane_parameters[static_cast<std::size_t>(lane)] = read_weights(part(lane)).tensors;
    }
    write_all_weights(run, result);
    std::filesystem::remove_all(parts);
  }
  if (result
          .interrupted) {  // a rank that ends with another code than 0 makes torchrun end the rest
    comm.barrier(run.places.all());
  }
}

}  // namespace entrain::engine
