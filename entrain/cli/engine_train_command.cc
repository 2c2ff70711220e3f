// entrain train: trains a run described by a TOML file.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "entrain/core/base/folder_lock.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"

#include "entrain/cli/stop_signals.h"
#include "entrain/cli/train_command.h"
#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/comm/c10d_comm.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/dumps.h"
#include "entrain/engine/train/processes.h"
#include "entrain/engine/train/trainer.h"

namespace entrain::cli {
namespace {

// Of threads that cannot be stopped: nothing is left to unwind.
[[noreturn]] void end_now(const std::string& why, int code) {
  std::cerr << "entrain: " << why << std::endl;
  std::_Exit(code);
}

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  bool resume = false;
  bool overwrite = false;
  bool dry_run = false;
  bool json = false;
};

engine::RunConfig read_config(const Options& options) {
  engine::RunConfig config = engine::read_run_config(options.config, options.overrides);
  if (options.resume) {
    config.checkpoint.resume = engine::kResumeAccept;
  } else if (options.overwrite) {
    config.checkpoint.resume = engine::kResumeNever;
  }
  return config;
}

// The run's folders, held against other runs.
class HeldFolders {
 public:
  HeldFolders(const engine::RunConfig& config, int rank) {
    LockOptions options;
    options.member = rank;
    // The other ranks wait for rank 0 meanwhile.
    options.patience = std::min(options.patience,
                                std::chrono::milliseconds(static_cast<std::int64_t>(
                                    5e2 * config.execution.deadline_seconds)));
    options.lost = [](const std::string& why) {
      end_now(concat(why, ": this run ends before it writes into the other's files"), kExitSystem);
    };
    locks_.emplace_back(std::make_unique<FolderLock>(config.output, options));
    if (!config.checkpoint.folder.empty() && rank == 0) {
      locks_.emplace_back(std::make_unique<FolderLock>(config.checkpoint.folder, options));
    }
  }

 private:
  std::vector<std::unique_ptr<FolderLock>> locks_;
};

// The newest checkpoint of the run, empty where there is none.
std::filesystem::path last_checkpoint(const engine::RunConfig& config) {
  const std::filesystem::path folder = engine::checkpoint_folder(config);
  try {
    const std::optional<engine::Latest> latest = engine::read_latest(folder);
    return latest.has_value() ? folder / engine::checkpoint_name(latest->step) : "";
  } catch (const std::exception&) {
    return {};
  }
}

int exit_code(const engine::RunConfig& config, bool interrupted, const StopSignals& signals) {
  if (!interrupted) {
    return 0;
  }
  return last_checkpoint(config).empty() ? signals.exit_code() : kExitStopped;
}

// What a run that was told to stop does when it takes longer than it may; `tell` the other ranks.
std::function<void()> late_end(const engine::RunConfig& config,
                               const StopSignals& signals,
                               const std::function<void(const std::string&)>& tell = {}) {
  return [&config, &signals, tell] {
    const std::filesystem::path last = last_checkpoint(config);
    const std::string why =
        concat("told to stop, and not done with step, checkpoint and weights within ",
               config.execution.stop_seconds,
               " s (execution.stop_seconds): ending now; ",
               last.empty() ? "there is no checkpoint to go on from"
                            : concat("the same command goes on from '", last.string(), "'"));
    if (tell) {
      tell(why);
    }
    end_now(why, exit_code(config, /*interrupted=*/true, signals));
  };
}

int dry_run(const engine::RunSetup& setup, bool json) {
  const engine::PreparedStep first = engine::prepare_step(setup, 0);
  const Json assignment = [&] {
    std::vector<SampleSizes> batch;
    for (const int sample : first.batch) {
      batch.push_back(setup.train.index.samples[static_cast<std::size_t>(sample)]);
    }
    return to_json(first.assignment, setup.model, batch);
  }();
  if (json) {
    print_json({{"config", engine::to_json(setup.config)},
                {"plan", to_json(setup.plan)},
                {"assignment", assignment}});
    return 0;
  }
  std::cout << "plan: " << json_text(to_json(setup.plan), 1) << "\n";
  std::cout
      << "memory per lane (parameters with gradients and optimizer state | peak activations):\n";
  const std::vector<LaneState> states =
      lane_states(setup.model, setup.plan, engine::state_options(setup));
  for (int lane = 0; lane < setup.plan.num_lanes(); ++lane) {
    std::cout << "  lane " << lane << ":";
    for (const StageRef& ref : setup.plan.lanes[static_cast<std::size_t>(lane)]) {
      std::cout << " " << module_name(setup.model, ref.module) << " " << ref.stage;
    }
    std::int64_t peak = 0;
    for (const auto& replica : first.predicted.lanes) {
      peak = std::max(peak, replica[static_cast<std::size_t>(lane)].peak_bytes);
    }
    const std::int64_t bytes = states[static_cast<std::size_t>(lane)].total_bytes();
    std::cout << "  " << format_bytes(bytes) << " | " << format_bytes(peak) << "\n";
  }
  std::cout << "first assignment: " << json_text(assignment) << "\n";
  if (setup.resume.has_value()) {
    std::cout << "training would go on at step " << setup.resume->manifest.step << " from "
              << setup.resume->checkpoint.string() << "\n";
  }
  std::cout << engine::epoch_note(setup) << "\n";
  std::cout << "predicted step time " << format_duration(first.predicted.makespan)
            << ", lower bound " << first.assignment.stats.lower_bound_s
            << " s; nothing was trained.\n";
  return 0;
}

void print_end(const engine::RunConfig& config, const engine::TrainResult& result) {
  const std::int64_t reached = result.first_step + result.steps;
  if (result.steps == 0 && !result.interrupted) {
    std::cout << "nothing left to train: all " << reached << " steps are done\n";
    return;
  }
  std::cout << (result.interrupted ? "stopped after step " : "trained to step ") << reached
            << " of " << config.steps << ": loss " << result.first_loss
            << (result.first_step > 0 ? " of the first step since it resumed, "
                                      : " of the first step, ")
            << result.last_loss << " of the last step, each of one global batch\n";
  if (!result.checkpoint.empty()) {
    std::cout << "checkpoint: " << result.checkpoint.string() << "\n";
  }
  if (result.interrupted && !result.checkpoint.empty()) {
    std::cout << "the same command goes on from there\n";
  }
}

void report(const engine::RunConfig& config, const engine::TrainResult& result, bool json) {
  if (json) {
    Json report = {{"first_step", result.first_step},
                   {"steps", result.steps},
                   {"skipped", result.skipped},
                   {"first_loss", result.first_loss},
                   {"last_loss", result.last_loss},
                   {"interrupted", result.interrupted},
                   {"median_step_s", result.median_step_s},
                   {"median_predicted_step_s", result.median_predicted_s},
                   {"weights", result.weights.string()},
                   {"checkpoint", result.checkpoint.string()}};
    if (result.validation_loss.has_value()) {
      report["validation_loss"] = *result.validation_loss;
    }
    print_json(report);
    return;
  }
  print_end(config, result);
  if (result.skipped > 0) {
    std::cout << "skipped steps: " << result.skipped << "\n";
  }
  if (result.validation_loss.has_value()) {
    std::cout << "validation loss: " << *result.validation_loss << "\n";
  }
  std::cout << "run folder: " << config.output << "\n";
}

void print_warnings(const engine::RunSetup& setup) {
  for (const std::string& warning : setup.warnings) {
    std::cerr << "entrain: warning: " << warning << "\n";
  }
}

int run(const Options& options) {
  engine::RunConfig config;  // outlives the thread that ends a run which is late
  StopSignals signals(engine::request_dumps, /*has_launcher=*/false);
  config = read_config(options);
  std::optional<HeldFolders> held;
  if (!options.dry_run) {
    held.emplace(config, 0);
  }
  const engine::RunSetup setup = engine::prepare_run(config);
  print_warnings(setup);
  if (options.dry_run) {
    return dry_run(setup, options.json);
  }
  engine::TrainEvents events;
  events.give_up = [](const std::string& why) { end_now(why, kExitSystem); };
  events.began = [&] {
    signals.begin_training(std::chrono::duration<double>(config.execution.stop_seconds),
                           late_end(config, signals));
  };
  const engine::TrainResult result = engine::train(setup, signals.told(), events);
  report(setup.config, result, options.json);
  return exit_code(config, result.interrupted, signals);
}

int exit_code(engine::StartFailure::Kind kind) {
  switch (kind) {
    case engine::StartFailure::Kind::kInvalidInput:
      return kExitInvalid;
    case engine::StartFailure::Kind::kSystemFailure:
      return kExitSystem;
    case engine::StartFailure::Kind::kNothingFits:
      return kExitNo;
    case engine::StartFailure::Kind::kInternalError:
      break;
  }
  return kExitBug;
}

// As torchrun counts the processes of a host.
int local_rank() {
  const char* text = std::getenv("LOCAL_RANK");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// Behind prepare_together(), so that all ranks want it or none.
void connect_devices(engine::C10dComm& comm,
                     const engine::RunSetup& setup,
                     const ProcessGroups& groups) {
  const engine::ExecutionConfig& config = setup.config.execution;
  if (config.device_messages != engine::kNccl) {
    return;
  }
  const at::Device device = engine::device_of(config.device, local_rank());
  const std::vector<int> peers = engine::RankPlaces(setup.plan).peers_of(comm.rank());
  try {
    comm.connect(device, groups.make_for_devices(), peers);
  } catch (const std::exception& error) {
    const std::string message =
        concat("rank ", comm.rank(), ": execution.device_messages = \"nccl\": ", error.what());
    comm.abort(message);
    throw SystemFailure(message);
  }
}

// Throws once another rank has failed, or its process on this host is gone: who waits for a file of
// its, and for no message, would not notice otherwise.
std::function<void()> peer_check(const engine::C10dComm& comm, const engine::RunConfig& config) {
  return [&comm, folder = std::filesystem::path(config.output)] {
    comm.check();
    for (const LockHolder& holder : dead_holders(folder)) {
      throw engine::CommAborted(concat("rank ",
                                       comm.rank(),
                                       ": lost rank ",
                                       holder.member,
                                       " (process ",
                                       holder.process,
                                       " on host ",
                                       holder.host,
                                       "): its process ended without a word"));
    }
  };
}

// One rank of a run whose ranks are processes. Rank 0 speaks for all; another does when it failed
// itself.
int run_process(const Options& options, const ProcessGroups& groups) {
  engine::RunConfig config;
  std::exception_ptr unreadable;
  try {
    config = read_config(options);
    if (groups.restarted && config.checkpoint.resume == engine::kResumeNever &&
        !last_checkpoint(config).empty()) {
      config.checkpoint.resume = engine::kResumeAuto;  // the first attempt began anew
    }
    remove_dead_locks(config.output);  // rank 0 may not know this host's processes
  } catch (...) {
    unreadable = std::current_exception();
  }
  const std::chrono::duration<double> deadline(config.execution.deadline_seconds);
  engine::C10dComm comm(groups.ranks,
                        std::chrono::duration_cast<std::chrono::milliseconds>(deadline));
  StopSignals signals(engine::request_dumps, /*has_launcher=*/true);
  std::optional<HeldFolders> held;
  const auto read = [&] {
    if (unreadable != nullptr) {
      std::rethrow_exception(unreadable);
    }
  };
  const engine::Prepared prepared = engine::prepare_together(
      comm,
      [&] {
        read();
        if (comm.rank() != 0) {
          held.emplace(config, comm.rank());
        }
        engine::RunSetup setup = engine::prepare_run(config);
        engine::device_of(config.execution.device, local_rank());  // or nobody begins
        return setup;
      },
      [&] {
        read();
        held.emplace(config, 0);
      });
  if (prepared.failure.has_value()) {
    if (comm.rank() == 0) {
      prepared.failure->raise();
    }
    return exit_code(prepared.failure->kind);
  }
  if (comm.rank() == 0) {
    print_warnings(*prepared.setup);
  }
  try {
    connect_devices(comm, *prepared.setup, groups);
    engine::TrainEvents events;
    events.began = [&] {
      signals.begin_training(std::chrono::duration<double>(config.execution.stop_seconds),
                             late_end(config, signals, [&comm](const std::string& why) {
                               comm.abort(concat("rank ", comm.rank(), ": ", why));
                             }));
    };
    events.check_others = peer_check(comm, config);
    const engine::TrainResult result =
        engine::train(*prepared.setup, signals.told(), comm, local_rank(), events);
    if (comm.rank() == 0) {
      report(prepared.setup->config, result, options.json);
    }
    return exit_code(config, result.interrupted, signals);
  } catch (const engine::CommAborted&) {
    if (comm.rank() == 0) {
      throw;
    }
    return kExitSystem;
  }
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  add_train_command(app, action, ProcessGroups());
}

void add_train_command(CLI::App& app, Action& action, const ProcessGroups& groups) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app,
      "train",
      "Trains a model; goes on from the run's last checkpoint. Ranks are threads here,\n"
      "and processes with `torchrun --nproc-per-node N -m entrain train run.toml`.\n"
      "A checkpoint is written every 15 minutes and at the end. Ctrl-C or SIGTERM finishes the\n"
      "step, writes one and exits with 75: the same command goes on. A second signal ends it at\n"
      "once, as does one before the first step (exit code 128 + its number).",
      "entrain train configs/demo.toml --set steps=100 --set plan.policy=sequential\n"
      "A checkpoint every 50 steps; the same command again resumes:\n"
      "  entrain train configs/demo.toml --set checkpoint.every_steps=50\n"
      "Fault drill (replica 1, lane 0 fails in step 5, as a bug would make it):\n"
      "  entrain train configs/demo.toml --set 'execution.fault_drill=[1, 0, 5]'");
  command->add_option("config", options->config, "run file (TOML)")->required();
  command->add_option("--set", options->overrides, "path.to.key=value, overrides the file")
      ->allow_extra_args(false);
  CLI::Option* resume =
      command->add_flag("--resume",
                        options->resume,
                        "go on from the folder's checkpoint though settings differ from its run's");
  command
      ->add_flag("--overwrite",
                 options->overwrite,
                 "begin anew in a folder that holds a run, which is moved to earlier-N in it")
      ->excludes(resume);
  command->add_flag(
      "--dry-run", options->dry_run, "plan, memory and first assignment; no training");
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, groups, &action] {
    action = [options, groups] {
      return groups.ranks.empty() ? run(*options) : run_process(*options, groups);
    };
  });
}

}  // namespace entrain::cli
