#include "entrain/engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/trace.h"
#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/checkpoint/checkpoint_writer.h"
#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/models/weights.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/drift_watch.h"
#include "entrain/engine/train/lane_state.h"
#include "entrain/engine/train/memory_report.h"
#include "entrain/engine/train/metrics.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/step_source.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Where ranks meet at the end of a step: the last to report owns the step's record. Ranks may
// already be in the next step by then, so every step has its own entry.
class StepBoard {
 public:
  StepBoard(int replicas, int lanes) : replicas_(replicas), lanes_(lanes) {}

  // Common origin of a step's times: the moment the first rank begins it.
  Clock::time_point start_of(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[step];
    if (entry.losses.empty()) {
      entry.start = Clock::now();
      entry.losses.assign(static_cast<std::size_t>(replicas_ * lanes_), 0.0);
      entry.record.step = step;
      entry.record.processor_s.assign(static_cast<std::size_t>(replicas_),
                                      std::vector<double>(static_cast<std::size_t>(lanes_)));
      entry.record.measured.lanes.assign(static_cast<std::size_t>(replicas_),
                                         std::vector<LaneUsage>(static_cast<std::size_t>(lanes_)));
    }
    return entry.start;
  }

  // The complete record for the last rank to report, nothing for the others.
  std::optional<StepRecord> report(std::int64_t step, int replica, int lane, StepOutcome outcome) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(step);
    Timeline& measured = entry.record.measured;
    entry.losses[static_cast<std::size_t>(replica * lanes_ + lane)] = outcome.loss_sum;
    entry.record.gradient_norm = outcome.gradient_norm;
    measured.lanes[static_cast<std::size_t>(replica)][static_cast<std::size_t>(lane)] =
        outcome.usage;
    entry.record.processor_s[static_cast<std::size_t>(replica)][static_cast<std::size_t>(lane)] =
        std::chrono::duration<double>(outcome.processor).count();
    measured.makespan =
        std::max<std::chrono::nanoseconds>(measured.makespan, Clock::now() - entry.start);
    measured.events.insert(measured.events.end(), outcome.events.begin(), outcome.events.end());
    if (++entry.reported < replicas_ * lanes_) {
      return std::nullopt;
    }
    // Summed in rank order, so that the loss does not depend on who came first.
    StepRecord record = std::move(entry.record);
    record.loss = std::accumulate(entry.losses.begin(), entry.losses.end(), 0.0);
    record.step_s = std::chrono::duration<double>(record.measured.makespan).count();
    entries_.erase(step);
    return record;
  }

 private:
  struct Entry {
    Clock::time_point start;
    int reported = 0;
    std::vector<double> losses;  // [rank], sums over the rank's targets
    StepRecord record;
  };
  int replicas_;
  int lanes_;
  std::mutex mutex_;
  std::map<std::int64_t, Entry> entries_;
};

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// State of a run that all ranks share.
struct Run {
  Run(const RunSetup& run_setup, const std::atomic<bool>& flag)
      : setup(run_setup),
        interrupted(flag),
        num_ranks(run_setup.plan.replicas * run_setup.plan.num_lanes()),
        comm(num_ranks,
             std::chrono::milliseconds(
                 static_cast<std::int64_t>(run_setup.config.execution.deadline_seconds * 1e3))),
        first_step(run_setup.resume.has_value() ? run_setup.resume->manifest.step : 0),
        source(run_setup, first_step, run_setup.config.steps, num_ranks),
        board(run_setup.plan.replicas, run_setup.plan.num_lanes()),
        metrics(run_setup.config.output,
                run_setup.config.steps,
                std::max<std::int64_t>(1, run_setup.config.steps / 40),
                run_setup.resume.has_value() && run_setup.resume->continues
                    ? std::optional(first_step)
                    : std::nullopt),
        drift(DriftWatch::of(run_setup)),
        validation(prepare_validation(run_setup)),
        lane_parameters(static_cast<std::size_t>(run_setup.plan.num_lanes())) {
    const RunConfig& config = run_setup.config;
    if (!config.execution.paced) {
      checkpoints.emplace(checkpoint_folder(config),
                          config.checkpoint.keep,
                          run_setup.plan.num_lanes(),
                          run_setup.identity);
    }
  }

  const RunSetup& setup;
  const std::atomic<bool>& interrupted;
  int num_ranks;
  ThreadCommGroup comm;
  std::int64_t first_step;
  StepSource source;
  StepBoard board;
  MetricsLog metrics;
  std::optional<DriftWatch> drift;
  std::vector<PreparedStep> validation;
  std::vector<std::vector<NamedParameter>> lane_parameters;  // of replica 0, after the last step
  std::optional<CheckpointWriter> checkpoints;               // none when paced
  std::vector<double> losses;
  std::vector<double> step_seconds;
  std::vector<double> predicted_seconds;
  std::vector<double> validation_losses;
  std::mutex mutex;
};

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

void finish_step(Run& run, const PreparedStep& prepared, StepRecord record) {
  record.loss /= static_cast<double>(prepared.target_tokens);
  const int every = run.setup.config.optimizer.update_every;
  record.updates = (prepared.step + 1) % every == 0;
  record.learning_rate = learning_rate_at(
      run.setup.config.optimizer, prepared.step / every, run.setup.config.steps / every);
  if (!run.setup.config.execution.paced &&
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
  run.metrics.step(prepared, record);
  run.losses.push_back(record.loss);
  run.step_seconds.push_back(record.step_s);
  run.predicted_seconds.push_back(
      std::chrono::duration<double>(prepared.predicted.makespan).count());
  if (prepared.step == run.setup.config.execution.trace_step) {
    write_traces(run, prepared, record.measured);
  }
  if (run.checkpoints.has_value()) {
    run.checkpoints->check();
    run.checkpoints->approve(prepared.step + 1);
  }
  if (run.interrupted) {
    run.source.stop();
  }
}

// One rank's life.
class RankLoop {
 public:
  RankLoop(Run& run, int rank)
      : run_(run),
        replica_(rank / run.setup.plan.num_lanes()),
        lane_(rank % run.setup.plan.num_lanes()),
        comm_(run.comm.comm(rank)),
        executor_(run.setup.model, run.setup.plan, replica_, lane_, comm_, executor_options()),
        optimizer_(
            executor_.trained(), executor_.layout().shard_size(), run.setup.config.optimizer),
        reader_(run.setup.train.index, run.setup.model, reader_options(run)),
        validation_reader_(run.setup.validation.index, run.setup.model, reader_options(run)) {
    if (run.setup.resume.has_value()) {
      restore(*run.setup.resume,
              run.first_step / run.setup.config.optimizer.update_every,
              executor_,
              optimizer_);
    }
  }

  void loop() {
    std::int64_t step = run_.first_step;
    note_memory();
    validate_when_due(step);  // of a checkpoint, whose validation comes after it
    while (const auto prepared = run_.source.get(step)) {
      train_step(*prepared);
      ++step;
      if (is_due(step, run_.setup.config.checkpoint.every_steps)) {
        save(step);
      }
      validate_when_due(step);
    }
    save_at_end(step);
    validate_now(step);
    const std::vector<NamedParameter> weights = executor_.weights();
    if (replica_ == 0) {
      run_.lane_parameters[static_cast<std::size_t>(lane_)] = weights;
    }
  }

 private:
  [[nodiscard]] ExecutorOptions executor_options() const {
    const RunConfig& config = run_.setup.config;
    ExecutorOptions options;
    options.stage.seed = config.seed;
    options.stage.dtype =
        config.execution.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
    options.clip_norm = config.optimizer.clip_norm;
    options.paced = config.execution.paced;
    options.measure_memory = config.execution.measure_memory;
    options.record_events = config.execution.trace_step >= 0;
    const std::vector<int>& drill = config.execution.fault_drill;
    if (!drill.empty() && drill[0] == replica_ && drill[1] == lane_) {
      options.fault_step = drill[2];
    }
    return options;
  }

  static ReadAheadOptions reader_options(const Run& run) {
    ReadAheadOptions options;
    options.memory_bytes = run.setup.config.data.read_ahead_mib << 20U;
    return options;
  }

  StepInputs inputs_of(const PreparedStep& prepared, StepData* data, Clock::time_point start) {
    StepInputs inputs;
    inputs.program = &prepared.program;
    inputs.costs = &prepared.costs;
    inputs.sample_ids = &prepared.sample_ids;
    inputs.step = prepared.step;
    inputs.target_tokens = prepared.update_target_tokens;
    inputs.data = data;
    inputs.start = start;
    return inputs;
  }

  // The step's data, queued now unless it was queued while the step before ran.
  std::shared_ptr<StepData> data_of(const PreparedStep& prepared) {
    if (queued_step_ != prepared.step) {
      queued_ = queue(prepared);
    }
    queued_step_ = -1;
    return std::move(queued_);
  }

  std::shared_ptr<StepData> queue(const PreparedStep& prepared) {
    return reader_.queue(needs_of(prepared.program, replica_, lane_, prepared.batch));
  }

  void note_memory() {
    if (run_.setup.config.execution.paced) {
      return;
    }
    LaneState held = executor_.held_bytes();
    held.optimizer_bytes += optimizer_.bytes();
    const std::string note = report_memory(run_.setup, held, comm_);
    if (!note.empty()) {
      run_.metrics.note(note);
    }
  }

  void train_step(const PreparedStep& prepared) {
    const RunConfig& config = run_.setup.config;
    const bool paced = config.execution.paced;
    const std::shared_ptr<StepData> data = paced ? nullptr : data_of(prepared);
    if (const auto next = run_.source.peek(prepared.step + 1); next != nullptr && !paced) {
      queued_ = queue(*next);
      queued_step_ = next->step;
    }
    StepInputs inputs = inputs_of(prepared, data.get(), run_.board.start_of(prepared.step));
    const int every = config.optimizer.update_every;
    inputs.begins_update = prepared.step % every == 0;
    inputs.ends_update = (prepared.step + 1) % every == 0;
    StepOutcome outcome = executor_.run(
        inputs, [&] { optimizer_.step(prepared.step / every, config.steps / every); });
    auto record = run_.board.report(prepared.step, replica_, lane_, std::move(outcome));
    if (record.has_value()) {
      finish_step(run_, prepared, std::move(*record));
    }
  }

  static bool is_due(std::int64_t step, std::int64_t every) {
    return every > 0 && step % every == 0;
  }

  // Replicas hold the same values, or shards of them that come together here, so the first one's
  // lanes write them.
  void save(std::int64_t step) {
    if (!run_.checkpoints.has_value()) {
      return;
    }
    const std::vector<NamedParameter> weights = executor_.weights();
    const std::vector<NamedParameter> moments = named_moments(executor_, optimizer_);
    if (replica_ == 0) {
      run_.checkpoints->submit(step, snapshot_of(lane_, weights, moments));
    }
  }

  // All ranks leave the loop after the same step, so all decide alike. A run that began behind a
  // checkpoint writes its last one too, or the same command would go back there again.
  void save_at_end(std::int64_t step) {
    const std::int64_t every = run_.setup.config.checkpoint.every_steps;
    const bool wanted = every > 0 || step < run_.setup.config.steps || run_.first_step > 0;
    if (wanted && step > run_.first_step && !is_due(step, every)) {
      save(step);
    }
  }

  void validate_when_due(std::int64_t step) {
    const RunConfig& config = run_.setup.config;
    if (step > 0 && step < config.steps && is_due(step, config.validation.every)) {
      validate_now(step);
    }
  }

  // Every rank walks the same validation batches; the last LLM lane of each replica holds the
  // losses.
  void validate_now(std::int64_t step) {
    if (run_.setup.config.execution.paced || run_.validation.empty()) {
      return;
    }
    double loss_sum = 0;
    std::int64_t targets = 0;
    for (const PreparedStep& prepared : run_.validation) {
      const std::shared_ptr<StepData> data =
          validation_reader_.queue(needs_of(prepared.program, replica_, lane_, prepared.batch));
      loss_sum += executor_.evaluate(inputs_of(prepared, data.get(), Clock::now()));
      targets += prepared.target_tokens;
    }
    at::Tensor total = at::scalar_tensor(loss_sum, at::kDouble).reshape({1});
    std::vector<int> all(static_cast<std::size_t>(run_.num_ranks));
    std::iota(all.begin(), all.end(), 0);
    comm_.all_reduce_sum(total, all);
    if (comm_.rank() == 0) {
      run_.validation_losses.push_back(total.item<double>() / static_cast<double>(targets));
      run_.metrics.validation(step, run_.validation_losses.back());
    }
  }

  Run& run_;
  int replica_;
  int lane_;
  Comm& comm_;
  Executor executor_;
  AdamW optimizer_;
  ReadAhead reader_;
  ReadAhead validation_reader_;
  std::shared_ptr<StepData> queued_;
  std::int64_t queued_step_ = -1;
};

TrainResult result_of(Run& run) {
  TrainResult result;
  result.steps = static_cast<std::int64_t>(run.losses.size());
  result.first_step = run.first_step;
  result.interrupted = run.interrupted && run.first_step + result.steps < run.setup.config.steps;
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
  run.metrics.note(concat("resumed at step ",
                          run.first_step,
                          " of ",
                          run.setup.config.steps,
                          " from '",
                          resume.checkpoint.string(),
                          "'"));
  for (const std::string& note : resume.notes) {
    run.metrics.note("resumed: " + note);
  }
}

}  // namespace

TrainResult train(const RunSetup& setup, const std::atomic<bool>& interrupted) {
  const std::filesystem::path folder(setup.config.output);
  write_file(folder / "config.json", to_json(setup.config).dump(1) + "\n");
  write_file(folder / "plan.json", to_json(setup.plan).dump(1) + "\n");
  write_file(folder / "model.json", to_json(setup.model).dump(1) + "\n");
  const std::string set_aside = prepare_checkpoint_folder(setup.config, setup.resume);
  Run run(setup, interrupted);
  if (!set_aside.empty()) {
    run.metrics.note(set_aside);
  }
  note_resume(run);
  run.metrics.note(concat(setup.plan.replicas,
                          " replicas x ",
                          setup.plan.num_lanes(),
                          " lanes, policy ",
                          setup.plan.policy,
                          ", schedule ",
                          setup.plan.schedule,
                          ", global batch ",
                          setup.config.data.global_batch));
  if (run.drift.has_value() && !run.drift->note().empty()) {
    run.metrics.note(run.drift->note());
  }
  replay_drift(run);
  run_ranks(run.comm, [&](int rank) { RankLoop(run, rank).loop(); });
  TrainResult result = result_of(run);
  if (!setup.config.execution.paced) {
    std::vector<NamedParameter> parameters;
    for (const auto& lane : run.lane_parameters) {
      parameters.insert(parameters.end(), lane.begin(), lane.end());
    }
    result.weights = folder / "weights.safetensors";
    write_weights(result.weights, parameters);
    run.checkpoints->finish();
    result.checkpoint = run.checkpoints->last_written();
  }
  return result;
}

}  // namespace entrain::engine
