#include "entrain/engine/train/rank_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/checkpoint/read.h"
#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/fault_drill.h"
#include "entrain/engine/train/initial_weights.h"
#include "entrain/engine/train/memory_report.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/rank_data.h"
#include "entrain/engine/train/skipped_steps.h"
#include "entrain/engine/train/step_barrier.h"
#include "entrain/engine/train/update_in_progress.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

// The drill of the rank at a place, if it has one.
std::optional<RankDrill> drill_of(const ExecutionConfig& config, const RankPlace& place) {
  if (config.fault_drill.empty() ||
      place != RankPlace{config.fault_drill[0], config.fault_drill[1], 0}) {
    return std::nullopt;
  }
  FaultDrill drill;
  drill.step = config.fault_drill[2];
  const auto* const kind = std::find(kFaultNames.begin(), kFaultNames.end(), config.fault_kind);
  drill.kind = static_cast<FaultKind>(kind - kFaultNames.begin());
  drill.hang = std::chrono::milliseconds(static_cast<std::int64_t>(3e3 * config.deadline_seconds));
  return RankDrill(drill, place);
}

// Ranks of the lane on this host, this one among them, where they are processes; none if it is
// alone there. All ranks of the lane call it together.
std::vector<int> lane_here(const RankPlaces& places,
                           const RankPlace& place,
                           int local_rank,
                           Comm& comm) {
  const std::vector<int> lane = places.of_lane(place.replica, place.lane);
  // Of a host: torchrun numbers its ranks in a row.
  const std::int64_t first = comm.rank() - local_rank;
  const at::Tensor firsts = comm.all_gather(at::full({1}, first, at::kLong), lane);
  std::vector<int> here;
  for (std::size_t i = 0; i < lane.size(); ++i) {
    if (firsts.const_data_ptr<std::int64_t>()[i] == first) {
      here.push_back(lane[i]);
    }
  }
  return here.size() > 1 ? here : std::vector<int>();
}

LaneShare share_of(const Run& run, const RankPlace& place, int local_rank, Comm& comm) {
  const int width = run.places.width(place.lane);
  if (!run.in_processes) {
    return {width, width, run.places.num_ranks(), {}};
  }
  const char* hosted = std::getenv("LOCAL_WORLD_SIZE");  // torchrun's: processes it started here
  LaneShare share{1, width, hosted == nullptr ? 1 : std::atoi(hosted), {}};
  const RunConfig& config = run.setup.config;
  if (width > 1 && config.data.share_decoding && !config.execution.paced) {
    share.sharing = lane_here(run.places, place, local_rank, comm);
  }
  return share;
}

// Both moments of every trained parameter, named as in a checkpoint: to be copied.
std::vector<NamedParameter> named_moments(const Executor& executor, const AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> named;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    const std::vector<NamedParameter> moments =
        executor.whole(optimizer.moments()[i], kMomentSuffixes[i]);
    named.insert(named.end(), moments.begin(), moments.end());
  }
  return named;
}

// Sets weights and moments to those of a checkpoint after `updates` updates.
// Throws  as load_tensors() does.
void restore(const ResumePoint& resume,
             std::int64_t updates,
             Executor& executor,
             AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  const auto like = [](const std::vector<NamedParameter>& tensors) {
    std::vector<NamedParameter> result;
    for (const NamedParameter& tensor : tensors) {
      result.push_back({tensor.name, at::empty_like(tensor.tensor)});
    }
    return result;
  };
  const std::vector<NamedParameter> weights = like(executor.weights());
  std::vector<NamedParameter> tensors = weights;
  std::vector<std::vector<NamedParameter>> moments;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    moments.push_back(like(executor.whole(optimizer.moments()[i], kMomentSuffixes[i])));
    tensors.insert(tensors.end(), moments.back().begin(), moments.back().end());
  }
  load_tensors(resume.checkpoint, resume.manifest, tensors);
  executor.set_weights(weights);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    executor.take(moments[i], optimizer.moments()[i]);
  }
  optimizer.set_updates(updates);
}

class RankLoop {
 public:
  RankLoop(Run& run, Comm& comm, int local_rank)
      : run_(run),
        device_(device_of(run.setup.config.execution.device, local_rank)),
        place_(run.places.place_of(comm.rank())),
        drill_(drill_of(run.setup.config.execution, place_)),
        comm_(recorded(comm)),
        skips_(run.setup.config.faults,
               *comm_,
               run.setup.resume.has_value() ? run.setup.resume->manifest.skipped : SkipCounts()),
        barrier_(*comm_, run.places),
        executor_(run.setup.model, run.setup.plan, *comm_, executor_options()),
        optimizer_(
            executor_.trained(), executor_.layout().shard_size(), run.setup.config.optimizer),
        data_(run.setup,
              place_,
              share_of(run, place_, local_rank, *comm_),
              run.lane_readers,
              *comm_) {
    if (run.setup.resume.has_value()) {
      restore(*run.setup.resume,
              run.first_step / run.setup.config.optimizer.update_every - skips_.counts().updates,
              executor_,
              optimizer_);
    } else if (run.setup.initial.has_value() && !run.setup.config.execution.paced) {
      load_initial_weights(*run.setup.initial, run.setup.model, executor_);
    }
  }

  // The first step to run; null if there is none.
  std::shared_ptr<const PreparedStep> begin() {
    saved_ = run_.first_step;
    note_memory();
    const std::shared_ptr<const PreparedStep> first = run_.source.get(run_.first_step);
    barrier_.open(first.get());
    return first;
  }

  // Returns the step to run now: null after the last one, or when a rank was told to stop.
  std::shared_ptr<const PreparedStep> train_step(const PreparedStep& prepared) {
    const RunConfig& config = run_.setup.config;
    const int every = config.optimizer.update_every;
    const bool ends_update = (prepared.step + 1) % every == 0;
    const std::shared_ptr<StepData> data =
        data_.of(prepared, run_.source.peek(prepared.step + 1).get());
    StepReport report;
    report.step = prepared.step;
    report.with_events = prepared.step == config.execution.trace_step;
    report.start = Clock::now();
    std::optional<SkippedStep> skip = leave_out_if_bad(prepared, data.get());
    if (!skip.has_value() || (ends_update && !update_.empty())) {
      StepInputs inputs = inputs_of(prepared, data.get(), report.start);
      inputs.target_tokens = update_.divisor();
      inputs.begins_update = update_.empty();
      inputs.ends_update = ends_update;
      inputs.computes = !skip.has_value();
      report.outcome = executor_.run(
          inputs, [&] { optimizer_.step(prepared.step / every, config.steps / every); });
      if (inputs.computes) {
        update_.add(prepared.target_tokens);
      }
      if (const auto nan = skips_.behind(report.outcome, ends_update); nan.has_value()) {
        update_.drop();
        skip = nan;
      }
    }
    report.end = Clock::now();
    if (data != nullptr) {
      report.data = data_.times(*data);
      report.decode_threads = data_.num_threads();
    }
    report.stop = run_.interrupted && ends_update;  // an update that has begun is finished
    report.save = ends_update && clock_says_save();
    report.updated = ends_update && !update_.empty();
    skips_.count(skip.has_value(), ends_update, report.updated);
    return close_step(prepared, report, skip);
  }

  // After a step, with the number of the next: writes a checkpoint if one is due.
  void save_when_due(std::int64_t step) {
    if (is_due(step, run_.setup.config.checkpoint.every_steps) || save_is_due_) {
      save(step);
    }
  }

  // Returns whether the run continues, as validate_now().
  bool validate_when_due(std::int64_t step) {
    const RunConfig& config = run_.setup.config;
    return step == 0 || step >= config.steps || !is_due(step, config.validation.every) ||
           validate_now(step);
  }

  void end(std::int64_t step) {
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
  std::unique_ptr<RecordedComm> recorded(Comm& comm) {
    CallLog& log = run_.dumps.log(comm.rank());
    return drill_.has_value() ? std::make_unique<DrilledComm>(comm, log, *drill_)
                              : std::make_unique<RecordedComm>(comm, log);
  }

  ExecutorOptions executor_options() {
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
    options.log = &run_.dumps.log(comm_->rank());
    if (drill_.has_value()) {
      options.decorate = [this](std::unique_ptr<LaneCompute> compute) {
        return drill_->around(std::move(compute));
      };
    }
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

  void note_memory() {
    if (run_.setup.config.execution.paced) {
      return;
    }
    StateBytes held = executor_.held_bytes();
    held.optimizer_bytes += optimizer_.bytes();
    const std::string note = report_memory(run_.setup, held, *comm_);
    if (!note.empty()) {
      run_.record->note(note);
    }
  }

  // Why the step's batch is not in the update, if it is not.
  std::optional<SkippedStep> leave_out_if_bad(const PreparedStep& prepared, StepData* data) {
    if (prepared.step % run_.setup.config.optimizer.update_every == 0) {
      update_.begin(prepared.update_target_tokens);
    }
    std::optional<SkippedStep> skip = skips_.before(data);
    if (skip.has_value()) {
      const double factor = update_.leave_out(prepared.target_tokens);
      if (!update_.empty()) {
        executor_.scale_gradients(factor);
      }
    }
    return skip;
  }

  // The next step is prepared by now, or all ranks wait for it together. Its failure is thrown
  // after this step's record.
  std::shared_ptr<const PreparedStep> close_step(const PreparedStep& prepared,
                                                 const StepReport& report,
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
    StepVerdict verdict = barrier_.close(report, next.get());
    save_is_due_ = verdict.save;
    if (verdict.stop && prepared.step + 1 < run_.setup.config.steps) {
      run_.stopped = true;
    }
    if (verdict.record.has_value()) {
      verdict.record->assign_wait_s = std::exchange(assign_wait_s_, waited_s);
      verdict.record->skipped = skip;
      verdict.record->updated = report.updated;
      verdict.record->skipped_steps = skips_.counts().steps;
      run_.record->step(prepared, std::move(*verdict.record));
      if (run_.checkpoints.has_value()) {
        run_.checkpoints->check();
        run_.checkpoints->approve(prepared.step + 1);
      }
      if (skip.has_value()) {
        skips_.check_row(prepared.step, *skip);
      }
    } else if (run_.in_processes && run_.checkpoints.has_value()) {
      run_.checkpoints->check();
    }
    run_.log.line(concat("step ",
                         prepared.step,
                         ": ",
                         format_duration(report.end - report.start),
                         ", busy ",
                         format_duration(report.outcome.usage.busy),
                         ", gradient norm ",
                         report.outcome.gradient_norm,
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

  // The duties of all ranks, and those of rank 0.
  [[nodiscard]] bool clock_says_save() const {
    const double minutes = run_.setup.config.checkpoint.every_minutes;
    return comm_->rank() == 0 && minutes > 0 &&
           Clock::now() - saved_at_ >= std::chrono::duration<double, std::ratio<60>>(minutes);
  }

  // Replicas hold the same values, or shards of them that come together here as the parts of a
  // lane's ranks do, so the first one's lanes write them; in a paced run none does.
  [[nodiscard]] bool writes() const {
    return place_.replica == 0 && place_.tensor_rank == 0 && run_.checkpoints.has_value();
  }

  void save(std::int64_t step) {
    saved_ = step;
    if (comm_->rank() == 0) {
      saved_at_ = Clock::now();
    }
    const std::vector<NamedParameter> weights = executor_.weights();
    const std::vector<NamedParameter> moments = named_moments(executor_, optimizer_);
    if (writes()) {
      LaneSnapshot snapshot = snapshot_of(place_.lane, weights, moments);
      snapshot.skipped = skips_.counts();
      run_.checkpoints->submit(step, std::move(snapshot));
      if (run_.in_processes && comm_->rank() != 0) {
        run_.checkpoints->approve(step);  // rank 0 commits, once it has approved
      }
      run_.log.line(concat("step ", step, ": handed in a checkpoint"));
    }
  }

  // All ranks run the same validation batches; the last LLM lane of each replica has the
  // losses. Returns false when a rank was told to stop: then there is no result, and the run ends.
  bool validate_now(std::int64_t step) {
    if (run_.validation.empty()) {
      return true;
    }
    double loss_sum = 0;
    std::int64_t targets = 0;
    std::int64_t patches = 0;
    for (std::size_t i = 0; i < run_.validation.size(); ++i) {
      if (sum_over_ranks({run_.interrupted ? 1.0 : 0.0}).front() > 0) {
        run_.stopped = true;
        return false;
      }
      const PreparedStep& prepared = run_.validation[i];
      const PreparedStep* next = i + 1 < run_.validation.size() ? &run_.validation[i + 1] : nullptr;
      const std::shared_ptr<StepData> data = data_.validation(prepared, next);
      loss_sum += executor_.evaluate(inputs_of(prepared, data.get(), Clock::now()));
      targets += prepared.target_tokens;
      patches += data->times().patches;
    }
    const std::vector<double> totals = sum_over_ranks({loss_sum, static_cast<double>(patches)});
    if (comm_->rank() == 0) {
      run_.record->validation(
          step, totals[0] / static_cast<double>(targets), static_cast<std::int64_t>(totals[1]));
    }
    return true;
  }

  std::vector<double> sum_over_ranks(const std::vector<double>& values) {
    at::Tensor sums = at::tensor(values, at::kDouble);
    comm_->all_reduce_sum(sums, run_.places.all());
    const auto* data = sums.const_data_ptr<double>();
    return {data, data + values.size()};
  }

  Run& run_;
  at::Device device_;
  RankPlace place_;
  std::optional<RankDrill> drill_;
  std::unique_ptr<RecordedComm> comm_;
  StepSkips skips_;
  UpdateInProgress update_;
  StepBarrier barrier_;
  Executor executor_;
  AdamW optimizer_;
  RankData data_;
  double assign_wait_s_ = 0;                   // for the step that runs now
  std::int64_t saved_ = 0;                     // the last step with a checkpoint
  Clock::time_point saved_at_ = Clock::now();  // rank 0's
  bool save_is_due_ = false;                   // after the step that ran last
};

}  // namespace

void train_rank(Run& run, Comm& comm, int local_rank, const std::function<void()>& began) {
  run.dumps.begin(comm.rank());
  try {
    RankLoop rank(run, comm, local_rank);
    std::int64_t step = run.first_step;
    std::shared_ptr<const PreparedStep> prepared = rank.begin();
    if (began) {
      began();
    }
    bool goes_on = rank.validate_when_due(
        step);  // of a resumed checkpoint, which is written before its validation
    while (goes_on && prepared != nullptr) {
      prepared = rank.train_step(*prepared);
      rank.save_when_due(++step);
      goes_on = !run.stopped && rank.validate_when_due(step);
    }
    rank.end(step);
    run.dumps.finish(comm.rank());
  } catch (...) {
    run.dumps.fail(comm.rank());
    throw;
  }
}

}  // namespace entrain::engine
