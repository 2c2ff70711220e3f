#include "entrain/engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"

#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/lane_state.h"
#include "entrain/engine/train/memory_report.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/run_state.h"
#include "entrain/engine/train/skipped_steps.h"
#include "entrain/engine/train/step_meeting.h"
#include "entrain/engine/train/update_in_progress.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Requires  a drill is asked for.
FaultDrill drill_of(const ExecutionConfig& config) {
  FaultDrill drill;
  drill.step = config.fault_drill[2];
  const auto* const kind = std::find(kFaultNames.begin(), kFaultNames.end(), config.fault_kind);
  drill.kind = static_cast<FaultKind>(kind - kFaultNames.begin());
  drill.hang = std::chrono::milliseconds(static_cast<std::int64_t>(3e3 * config.deadline_seconds));
  return drill;
}

StuckRanks stuck_ranks(const ExecutionConfig& config,
                       const std::function<void(const std::string& why)>& give_up) {
  StuckRanks stuck;
  stuck.patience =
      std::chrono::milliseconds(static_cast<std::int64_t>(3e3 * config.deadline_seconds));
  if (give_up) {
    stuck.give_up = [give_up](const std::string& failure, const std::vector<int>& ranks) {
      std::vector<std::string> names;
      for (const int rank : ranks) {
        names.push_back(std::to_string(rank));
      }
      give_up(concat(failure, "\nranks that do not end, so the process does: ", join(names)));
    };
  }
  return stuck;
}

// Of ranks that are threads: see train().
void check_devices(const RunSetup& setup) {
  const RankPlaces places(setup.plan);
  std::map<std::string, int> rank_on;  // device → rank of a lane that others share
  for (int rank = 0; rank < places.num_ranks(); ++rank) {
    const at::Device device = device_of(setup.config.execution.device, rank);
    if (device.is_cpu() || places.width(places.place_of(rank).lane) == 1) {
      continue;
    }
    const auto [found, is_new] = rank_on.try_emplace(device.str(), rank);
    if (!is_new) {
      throw InvalidInput(concat("ranks ",
                                found->second,
                                " and ",
                                rank,
                                " share device ",
                                device.str(),
                                ", and their lanes with other ranks: as threads their backward "
                                "passes would wait for each other for ever; make them processes "
                                "(torchrun --nproc-per-node ",
                                places.num_ranks(),
                                " -m entrain train …)"));
    }
  }
}

// One rank's life.
class RankLoop {
 public:
  RankLoop(Run& run, Comm& comm, int local_rank)
      : run_(run),
        device_(device_of(run.setup.config.execution.device, local_rank)),
        place_(run.places.place_of(comm.rank())),
        comm_(comm, run.dumps.log(comm.rank())),
        skips_(run.setup.config.faults,
               comm_,
               run.setup.resume.has_value() ? run.setup.resume->manifest.skipped : SkipCounts()),
        meeting_(comm_, run.places),
        executor_(run.setup.model,
                  run.setup.plan,
                  place_.replica,
                  place_.lane,
                  comm_,
                  executor_options()),
        optimizer_(
            executor_.trained(), executor_.layout().shard_size(), run.setup.config.optimizer),
        reader_(run.setup.train.index, run.setup.model, reader_options(run)),
        validation_reader_(run.setup.validation.index, run.setup.model, reader_options(run)) {
    if (run.setup.resume.has_value()) {
      restore(*run.setup.resume,
              run.first_step / run.setup.config.optimizer.update_every - skips_.counts().updates,
              executor_,
              optimizer_);
    }
  }

  void loop() {
    std::int64_t step = saved_ = run_.first_step;
    note_memory();
    std::shared_ptr<const PreparedStep> prepared = run_.source.get(step);
    meeting_.open(prepared.get());
    if (run_.events.began) {
      run_.events.began();
    }
    bool goes_on = validate_when_due(step);  // of a checkpoint, whose validation comes after it
    while (goes_on && prepared != nullptr) {
      prepared = train_step(*prepared);
      ++step;
      if (is_due(step, run_.setup.config.checkpoint.every_steps) || save_is_due_) {
        save(step);
      }
      goes_on = !run_.stopped && validate_when_due(step);
    }
    if (step > saved_) {  // all ranks leave the loop after the same step
      save(step);
    }
    if (!run_.stopped) {
      validate_now(step);
    }
    const std::vector<NamedParameter> weights = executor_.weights();
    if (writes()) {
      run_.lane_parameters[static_cast<std::size_t>(place_.lane)] = weights;
    }
  }

 private:
  [[nodiscard]] ExecutorOptions executor_options() const {
    const RunConfig& config = run_.setup.config;
    ExecutorOptions options;
    options.stage.seed = config.seed;
    options.stage.device = device_;
    options.stage.dtype =
        config.execution.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
    options.clip_norm = config.optimizer.clip_norm;
    options.paced = config.execution.paced;
    options.overlap_reduction = config.execution.overlap_reduction;
    options.measure_memory = config.execution.measure_memory;
    options.record_events = config.execution.trace_step >= 0;
    options.log = &run_.dumps.log(comm_.rank());
    const std::vector<int>& drill = config.execution.fault_drill;
    if (!drill.empty() && RankPlace{drill[0], drill[1], 0} == place_) {
      options.drill = drill_of(config.execution);
    }
    return options;
  }

  static ReadAheadOptions reader_options(const Run& run) {
    ReadAheadOptions options;
    options.memory_bytes = run.setup.config.data.read_ahead_mib << 20U;
    options.check_steps = run.setup.config.faults.on_bad_sample == kSkipStep;
    return options;
  }

  StepInputs inputs_of(const PreparedStep& prepared, StepData* data, Clock::time_point start) {
    StepInputs inputs;
    inputs.program = &prepared.program;
    inputs.costs = &prepared.costs;
    inputs.sample_ids = &prepared.sample_ids;
    inputs.step = prepared.step;
    inputs.target_tokens = prepared.target_tokens;
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
    return reader_.queue(needs_of(prepared.program, place_.replica, place_.lane, prepared.batch));
  }

  void note_memory() {
    if (run_.setup.config.execution.paced) {
      return;
    }
    LaneState held = executor_.held_bytes();
    held.optimizer_bytes += optimizer_.bytes();
    const std::string note = report_memory(run_.setup, held, comm_);
    if (!note.empty()) {
      run_.metrics->note(note);
    }
  }

  // Returns the step to run now: null after the last one, or when a rank was told to stop.
  std::shared_ptr<const PreparedStep> train_step(const PreparedStep& prepared) {
    const RunConfig& config = run_.setup.config;
    const bool paced = config.execution.paced;
    const std::shared_ptr<StepData> data = paced ? nullptr : data_of(prepared);
    if (const auto next = run_.source.peek(prepared.step + 1); next != nullptr && !paced) {
      queued_ = queue(*next);
      queued_step_ = next->step;
    }
    StepEnd end;
    end.step = prepared.step;
    end.with_events = prepared.step == config.execution.trace_step;
    end.start = Clock::now();
    const bool ends_update = (prepared.step + 1) % config.optimizer.update_every == 0;
    const std::optional<SkippedStep> skip =
        run_step(inputs_of(prepared, data.get(), end.start), prepared, ends_update, end.outcome);
    end.end = Clock::now();
    end.stop = run_.interrupted && ends_update;  // an update that has begun is finished
    end.save = ends_update && clock_says_save();
    end.updated = ends_update && !update_.empty();
    skips_.count(skip.has_value(), ends_update, end.updated);
    return close_step(prepared, end, skip);
  }

  // Runs what there is to run of the step, and says why if its batch is not in the update.
  std::optional<SkippedStep> run_step(StepInputs inputs,
                                      const PreparedStep& prepared,
                                      bool ends_update,
                                      StepOutcome& outcome) {
    const RunConfig& config = run_.setup.config;
    const int every = config.optimizer.update_every;
    if (prepared.step % every == 0) {
      update_.begin(prepared.update_target_tokens);
    }
    std::optional<SkippedStep> skip = skips_.before(inputs.data);
    if (skip.has_value()) {
      const double factor = update_.leave_out(prepared.target_tokens);
      if (!update_.empty()) {
        executor_.scale_gradients(factor);
      }
      if (!ends_update || update_.empty()) {
        return skip;
      }
    }
    inputs.target_tokens = update_.divisor();
    inputs.begins_update = update_.empty();
    inputs.ends_update = ends_update;
    inputs.computes = !skip.has_value();
    outcome = executor_.run(inputs,
                            [&] { optimizer_.step(prepared.step / every, config.steps / every); });
    if (inputs.computes) {
      update_.add(prepared.target_tokens);
    }
    if (std::optional<SkippedStep> nan = skips_.behind(outcome, ends_update); nan.has_value()) {
      update_.drop();
      return nan;
    }
    return skip;
  }

  // The next step is prepared by now, or all ranks wait for it together. What failed there comes
  // after this step's record.
  std::shared_ptr<const PreparedStep> close_step(const PreparedStep& prepared,
                                                 const StepEnd& end,
                                                 const std::optional<SkippedStep>& skip) {
    std::shared_ptr<const PreparedStep> next;
    std::exception_ptr error;
    const Clock::time_point asked = Clock::now();
    try {
      next = run_.source.get(prepared.step + 1);
    } catch (...) {
      error = std::current_exception();
    }
    const double waited_s = std::chrono::duration<double>(Clock::now() - asked).count();
    StepVerdict verdict = meeting_.close(end, next.get());
    save_is_due_ = verdict.save;
    if (verdict.stop && prepared.step + 1 < run_.setup.config.steps) {
      run_.stopped = true;
    }
    if (verdict.record.has_value()) {
      verdict.record->assign_wait_s = std::exchange(assign_wait_s_, waited_s);
      verdict.record->skipped = skip;
      verdict.record->updated = end.updated;
      verdict.record->skipped_steps = skips_.counts().steps;
      finish_step(run_, prepared, std::move(*verdict.record));
      if (skip.has_value()) {
        skips_.check_row(prepared.step, *skip);
      }
    } else if (run_.in_processes && run_.checkpoints.has_value()) {
      run_.checkpoints->check();
    }
    run_.log.line(concat("step ",
                         prepared.step,
                         ": ",
                         format_duration(end.end - end.start),
                         ", busy ",
                         format_duration(end.outcome.usage.busy),
                         ", gradient norm ",
                         end.outcome.gradient_norm,
                         ", digest ",
                         prepared.digest));
    if (error != nullptr && !verdict.stop) {
      std::rethrow_exception(error);
    }
    return verdict.stop ? nullptr : next;
  }

  static bool is_due(std::int64_t step, std::int64_t every) {
    return every > 0 && step % every == 0;
  }

  // Of rank 0 what all do.
  [[nodiscard]] bool clock_says_save() const {
    const double minutes = run_.setup.config.checkpoint.every_minutes;
    return comm_.rank() == 0 && minutes > 0 &&
           Clock::now() - run_.saved >= std::chrono::duration<double, std::ratio<60>>(minutes);
  }

  // Replicas hold the same values, or shards of them that come together here as the parts of a
  // lane's ranks do, so the first one's lanes write them.
  [[nodiscard]] bool writes() const { return place_.replica == 0 && place_.tensor_rank == 0; }

  void save(std::int64_t step) {
    saved_ = step;
    if (comm_.rank() == 0) {
      run_.saved = Clock::now();
    }
    if (run_.setup.config.execution.paced) {
      return;
    }
    const std::vector<NamedParameter> weights = executor_.weights();
    const std::vector<NamedParameter> moments = named_moments(executor_, optimizer_);
    if (writes()) {
      LaneSnapshot snapshot = snapshot_of(place_.lane, weights, moments);
      snapshot.skipped = skips_.counts();
      run_.checkpoints->submit(step, std::move(snapshot));
      if (run_.in_processes && comm_.rank() != 0) {
        run_.checkpoints->approve(step);  // rank 0 commits, once it has approved
      }
      run_.log.line(concat("step ", step, ": handed in a checkpoint"));
    }
  }

  // Returns whether the run goes on, as validate_now().
  bool validate_when_due(std::int64_t step) {
    const RunConfig& config = run_.setup.config;
    return step == 0 || step >= config.steps || !is_due(step, config.validation.every) ||
           validate_now(step);
  }

  // Every rank walks the same validation batches; the last LLM lane of each replica holds the
  // losses. Returns false when a rank was told to stop: then there is no result, and the run ends.
  bool validate_now(std::int64_t step) {
    if (run_.setup.config.execution.paced || run_.validation.empty()) {
      return true;
    }
    double loss_sum = 0;
    std::int64_t targets = 0;
    for (const PreparedStep& prepared : run_.validation) {
      if (sum_over_ranks(run_.interrupted ? 1 : 0) > 0) {
        run_.stopped = true;
        return false;
      }
      const std::shared_ptr<StepData> data = validation_reader_.queue(
          needs_of(prepared.program, place_.replica, place_.lane, prepared.batch));
      loss_sum += executor_.evaluate(inputs_of(prepared, data.get(), Clock::now()));
      targets += prepared.target_tokens;
    }
    const double total = sum_over_ranks(loss_sum);
    if (comm_.rank() == 0) {
      run_.validation_losses.push_back(total / static_cast<double>(targets));
      run_.metrics->validation(step, run_.validation_losses.back());
    }
    return true;
  }

  double sum_over_ranks(double value) {
    at::Tensor sum = at::scalar_tensor(value, at::kDouble).reshape({1});
    comm_.all_reduce_sum(sum, run_.places.all());
    return sum.item<double>();
  }

  Run& run_;
  at::Device device_;
  RankPlace place_;
  RecordedComm comm_;
  StepSkips skips_;
  UpdateInProgress update_;
  StepMeeting meeting_;
  Executor executor_;
  AdamW optimizer_;
  ReadAhead reader_;
  ReadAhead validation_reader_;
  std::shared_ptr<StepData> queued_;
  std::int64_t queued_step_ = -1;
  double assign_wait_s_ = 0;  // for the step that runs now
  std::int64_t saved_ = 0;    // the last step with a checkpoint
  bool save_is_due_ = false;  // after the step that ran last
};

// Of a run that has nothing left to do.
TrainResult finished_result(const RunSetup& setup) {
  TrainResult result;
  result.first_step = setup.config.steps;
  result.weights = std::filesystem::path(setup.config.output) / kWeightsName;
  return result;
}

bool is_finished(const RunSetup& setup) {
  return setup.resume.has_value() && setup.resume->finished;
}

TrainResult train_process(const RunSetup& setup,
                          const std::atomic<bool>& interrupted,
                          Comm& comm,
                          int local_rank,
                          const TrainEvents& events) {
  const bool leads = comm.rank() == 0;
  const std::string set_aside = leads ? open_folder(setup) : "";
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  comm.barrier(all);
  Run run(setup, interrupted, events, &comm);
  run.log.line(concat("rank ",
                      comm.rank(),
                      " of ",
                      comm.size(),
                      ", process ",
                      ::getpid(),
                      ", begins at step ",
                      run.first_step));
  if (leads) {
    announce(run, set_aside);
  }
  run.dumps.watch_signals();
  try {
    run.dumps.run(comm.rank(),
                  [&] { without_torch_errors([&] { RankLoop(run, comm, local_rank).loop(); }); });
    TrainResult result = result_of(run);
    write_weights_together(run, comm, result);
    run.log.line("finished");
    return result;
  } catch (const RankVanished&) {
    ::raise(SIGKILL);  // the drill's promise
    throw;
  } catch (const std::exception& error) {
    run.log.line(error.what());
    comm.abort(concat("rank ", comm.rank(), ": ", error.what()));  // before the run's books close
    throw;
  }
}

}  // namespace

TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  const TrainEvents& events) {
  if (is_finished(setup)) {
    return finished_result(setup);
  }
  check_devices(setup);
  const std::string set_aside = open_folder(setup);
  Run run(setup, interrupted, events, nullptr);
  announce(run, set_aside);
  ThreadCommGroup group(run.places.num_ranks(),
                        std::chrono::milliseconds(static_cast<std::int64_t>(
                            setup.config.execution.deadline_seconds * 1e3)));
  run.dumps.watch_signals();
  run_ranks(
      group,
      [&](int rank) { run.dumps.run(rank, [&] { RankLoop(run, group.comm(rank), rank).loop(); }); },
      stuck_ranks(setup.config.execution, events.give_up));
  TrainResult result = result_of(run);
  if (!setup.config.execution.paced) {
    write_all_weights(run, result);
  }
  return result;
}

TrainResult train(const RunSetup& setup,
                  const std::atomic<bool>& interrupted,
                  Comm& comm,
                  int local_rank,
                  const TrainEvents& events) {
  if (is_finished(setup)) {
    return finished_result(setup);
  }
  at::set_num_threads(1);
  wake_promptly();
  ENTRAIN_INVARIANT(comm.size() == RankPlaces(setup.plan).num_ranks(),
                    concat(comm.size(), " processes for another plan"));
  try {
    return train_process(setup, interrupted, comm, local_rank, events);
  } catch (const CommAborted&) {
    throw;
  } catch (const std::exception& error) {
    comm.abort(concat("rank ", comm.rank(), ": ", error.what()));
    throw;
  }
}

}  // namespace entrain::engine
