#include "entrain/engine/train/trainer.h"

#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/models/weights.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/rank_loop.h"

namespace entrain::engine {
namespace {

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
      give_up(concat(failure, "\nranks that did not end, so the process ends: ", join(names)));
    };
  }
  return stuck;
}

// For ranks that are threads: see train().
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
                                " and are ranks of lanes with several ranks: as threads their "
                                "backward passes would deadlock; run them as processes "
                                "(torchrun --nproc-per-node ",
                                places.num_ranks(),
                                " -m entrain train …)"));
    }
  }
}

TrainResult result_of(const Run& run, const RunFiles& files) {
  TrainResult result;
  if (run.record.has_value()) {
    static_cast<RunFigures&>(result) = run.record->figures();
  }
  static_cast<RunFiles&>(result) = files;
  result.first_step = run.first_step;
  result.interrupted = run.stopped;
  return result;
}

// For a finished run.
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
  comm.barrier(RankPlaces(setup.plan).all());
  Run run(setup, interrupted, events.check_others, &comm);
  run.log.line(concat("rank ",
                      comm.rank(),
                      " of ",
                      comm.size(),
                      ", process ",
                      ::getpid(),
                      ", begins at step ",
                      run.first_step));
  if (leads) {
    run.record->begin(set_aside, /*in_processes=*/true);
  }
  run.dumps.watch_signals();
  try {
    without_torch_errors([&] { train_rank(run, comm, local_rank, events.began); });
    const RunFiles files = write_weights_together(run, comm);
    run.log.line("finished");
    return result_of(run, files);
  } catch (const RankVanished&) {
    ::raise(SIGKILL);  // as the drill requires
    throw;
  } catch (const std::exception& error) {
    run.log.line(error.what());
    comm.abort(
        concat("rank ", comm.rank(), ": ", error.what()));  // before the run's records are closed
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
  Run run(setup, interrupted, events.check_others, nullptr);
  run.record->begin(set_aside, /*in_processes=*/false);
  ThreadCommGroup group(run.places.num_ranks(),
                        std::chrono::milliseconds(static_cast<std::int64_t>(
                            setup.config.execution.deadline_seconds * 1e3)));
  run.dumps.watch_signals();
  run_ranks(
      group,
      [&](int rank) { train_rank(run, group.comm(rank), rank, events.began); },
      stuck_ranks(setup.config.execution, events.give_up));
  return result_of(run, write_all_weights(run));
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
