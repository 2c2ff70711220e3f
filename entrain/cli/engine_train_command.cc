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
#include <thread>

#include <nlohmann/json.hpp>

#include "entrain/core/base/folder_lock.h"
#include "entrain/core/base/output.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/report_page.h"
#include "entrain/core/report/report_views.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/stop_signals.h"
#include "entrain/cli/train_command.h"
#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/comm/c10d_comm.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/dry_run.h"
#include "entrain/engine/train/dumps.h"
#include "entrain/engine/train/memory_fit.h"
#include "entrain/engine/train/prepare_run.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/processes.h"
#include "entrain/engine/train/run_checks.h"
#include "entrain/engine/train/trainer.h"

namespace entrain::cli {
namespace {

// Of threads that cannot be stopped: nothing is left to unwind.
[[noreturn]] void end_now(const std::string& why, int code) {
  std::cerr << "entrain: " << why << std::endl;
  std::_Exit(code);
}

struct TrainFlags {
  std::string config;
  std::vector<std::string> overrides;
  bool resume = false;
  bool overwrite = false;
  bool dry_run = false;
  std::string report;
  bool force = false;
  bool json = false;
};

// What goes into the run's own folder must not meet what the run writes there.
void check_in_run(const std::string& option,
                  const std::string& name,
                  const engine::RunConfig& config,
                  const std::string& ending) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(name);
  const std::filesystem::path folder = std::filesystem::weakly_canonical(config.output);
  const auto end = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first;
  if (!name.empty() && end == folder.end() &&
      (path.parent_path() != folder || path.extension() != ending)) {
    throw InvalidInput(concat(option,
                              ": '",
                              name,
                              "' is in the run's folder, where only a name that ends with ",
                              ending,
                              " can be had, directly in it"));
  }
}

// Opened before the run, so that a name that cannot be had stops it; written after it.
Output open_report(const TrainFlags& options, const engine::RunConfig& config) {
  check_in_run("--report", options.report, config, ".html");
  check_in_run("metrics.prometheus", config.metrics.prometheus, config, ".prom");
  Outputs outputs(
      {options.config, config.model_file, config.data.train, config.data.validation, config.output},
      options.force);
  outputs.open("metrics.prometheus", config.metrics.prometheus, OutputKind::kExposition);
  return outputs.open("--report", options.report, OutputKind::kPage);
}

void write_report(const TrainFlags& options, const engine::RunConfig& config, const Output& page) {
  if (page.named()) {
    page.write(
        report_page(report_of_views(Json::array({view_of_run(config.output)}), config.output)));
    std::cerr << "report written to " << options.report << "\n";
  }
}

engine::RunConfig read_config(const TrainFlags& options) {
  engine::RunConfig config = engine::read_run_config(options.config, options.overrides);
  check_outside_checkpoints("output", config.output);
  if (!config.checkpoint.folder.empty()) {
    check_outside_checkpoints("checkpoint.folder", config.checkpoint.folder);
  }
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
      end_now(concat(why, ": this run ends so that it does not overwrite the other's files"),
              kExitSystem);
    };
    locks_.emplace_back(std::make_unique<FolderLock>(config.output, options));
    if (!config.checkpoint.folder.empty() && rank == 0) {
      locks_.emplace_back(std::make_unique<FolderLock>(config.checkpoint.folder, options));
    }
  }

 private:
  std::vector<std::unique_ptr<FolderLock>> locks_;
};

// A dry run holds no folder, and warns of those that a run would wait for.
void hold(const engine::RunConfig& config, bool dry, std::optional<HeldFolders>& held) {
  if (!dry) {
    held.emplace(config, 0);
    return;
  }
  for (const std::string& folder : {config.output, config.checkpoint.folder}) {
    print_warnings({folder.empty() ? "" : in_use(folder)});
  }
}

// The newest checkpoint of the run; empty if there is none.
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

// Ends a run whose stop takes longer than allowed; `tell` informs the other ranks.
std::function<void()> late_end(const engine::RunConfig& config,
                               const StopSignals& signals,
                               const std::function<void(const std::string&)>& tell = {}) {
  return [&config, &signals, tell] {
    const std::filesystem::path last = last_checkpoint(config);
    const std::string why =
        concat("told to stop, but step, checkpoint and weights took longer than ",
               config.execution.stop_seconds,
               " s (execution.stop_seconds): ending now; ",
               last.empty() ? "there is no checkpoint to continue from"
                            : concat("the same command continues from '", last.string(), "'"));
    if (tell) {
      tell(why);
    }
    end_now(why, exit_code(config, /*interrupted=*/true, signals));
  };
}

int dry_run(const engine::RunSetup& setup, const engine::HostRanks& ranks, bool json) {
  const engine::PreparedStep first = engine::prepare_step(setup, 0);
  const engine::MemoryFit fit =
      engine::memory_fit(setup, first, ranks, engine::memory_supply(setup.config));
  if (json) {
    print_json(engine::dry_run_json(setup, first, fit));
  } else {
    std::cout << engine::dry_run_page(setup, first, fit);
  }
  return 0;
}

void print_end(const engine::RunConfig& config, const engine::TrainResult& result) {
  const std::int64_t reached = result.first_step + result.steps;
  if (result.steps == 0 && !result.interrupted) {
    std::cout << "nothing left to train: all " << counted(reached, "step") << " done\n";
    return;
  }
  constexpr std::int64_t kLossTail = 10;  // steps of TrainResult::last_loss
  std::cout << (result.interrupted ? "stopped after step " : "trained to step ") << reached
            << " of " << config.steps << ": loss " << result.first_loss
            << (result.first_step > 0 ? " of the first step since it resumed, "
                                      : " of the first step, ")
            << result.last_loss << " in the mean of the last "
            << counted(std::min<std::int64_t>(kLossTail, result.steps - result.skipped), "step")
            << "\n";
  if (!result.checkpoint.empty()) {
    std::cout << "checkpoint: " << result.checkpoint.string() << "\n";
  }
  if (result.interrupted && !result.checkpoint.empty()) {
    std::cout << "the same command continues from there\n";
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

// What this host is asked for: refused before anything is allocated, or warned of.
void check_host(const engine::RunSetup& setup, const engine::HostRanks& ranks) {
  print_warnings({engine::check_memory(setup, ranks)});
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  print_warnings({engine::crowd_warning(setup.config, ranks.count, cores)});
}

// Runs `train`. What a fault drill plays as a bug ("throw", "wrong-size") has a bug's exit code,
// and is not called one.
int with_drill(const engine::ExecutionConfig& config, const std::function<int()>& train) {
  if (config.fault_drill.empty()) {
    return train();
  }
  try {
    return train();
  } catch (const InternalError& error) {
    std::cerr << "entrain: " << error.what()
              << "\nThe fault drill caused this failure (execution.fault_drill, fault_kind \""
              << config.fault_kind << "\"); exit code 1, as a bug would have." << std::endl;
    return kExitBug;
  }
}

int run(const TrainFlags& options) {
  engine::RunConfig config;  // outlives the thread that ends a run which is late
  StopSignals signals(engine::request_dumps, /*has_launcher=*/false);
  config = read_config(options);
  const Output page = open_report(options, config);
  std::optional<HeldFolders> held;
  hold(config, options.dry_run, held);
  const engine::RunSetup setup = engine::prepare_run(config);
  print_warnings(setup.warnings);
  const engine::HostRanks ranks = engine::all_ranks(setup.plan);
  if (options.dry_run) {
    return dry_run(setup, ranks, options.json);
  }
  check_host(setup, ranks);
  engine::TrainEvents events;
  events.give_up = [](const std::string& why) { end_now(why, kExitSystem); };
  events.began = [&] {
    signals.begin_training(std::chrono::duration<double>(config.execution.stop_seconds),
                           late_end(config, signals));
  };
  return with_drill(config.execution, [&] {
    const engine::TrainResult result = engine::train(setup, signals.told(), events);
    report(setup.config, result, options.json);
    write_report(options, setup.config, page);
    return exit_code(config, result.interrupted, signals);
  });
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

// Ranks of a host are numbered through: torchrun gives a node a range of them.
engine::HostRanks ranks_here(const engine::Comm& comm) {
  const char* text = std::getenv("LOCAL_WORLD_SIZE");
  const int count = text == nullptr ? 1 : std::max(1, std::atoi(text));
  const int first = std::max(0, comm.rank() - local_rank());
  return {first, std::min(count, comm.size() - first)};
}

// After prepare_together(), so that either all ranks require it or none.
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
                                       "): its process ended without reporting an error"));
    }
  };
}

// One rank of a run whose ranks are processes. Rank 0 speaks for all; another does when it failed
// itself.
int run_process(const TrainFlags& options, const ProcessGroups& groups) {
  engine::RunConfig config;
  std::exception_ptr unreadable;
  try {
    config = read_config(options);
    if (groups.restarted && config.checkpoint.resume == engine::kResumeNever &&
        !last_checkpoint(config).empty()) {
      config.checkpoint.resume = engine::kResumeAuto;  // the first attempt started again
    }
    remove_dead_locks(config.output);  // rank 0 may not know this host's processes
  } catch (...) {
    unreadable = std::current_exception();
  }
  const std::chrono::duration<double> deadline(config.execution.deadline_seconds);
  Output page;
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
        if (comm.rank() != 0 && !options.dry_run) {
          held.emplace(config, comm.rank());
        }
        engine::RunSetup setup = engine::prepare_run(config);
        engine::device_of(config.execution.device, local_rank());  // fails before any rank begins
        if (local_rank() == 0 && !options.dry_run &&
            comm.size() == engine::RankPlaces(setup.plan).num_ranks()) {
          check_host(setup, ranks_here(comm));
        }
        return setup;
      },
      [&] {
        read();
        page = open_report(options, config);
        hold(config, options.dry_run, held);
      });
  if (prepared.failure.has_value()) {
    if (comm.rank() == 0) {
      prepared.failure->raise();
    }
    return exit_code(prepared.failure->kind);
  }
  if (comm.rank() == 0) {
    print_warnings(prepared.setup->warnings);
  }
  if (options.dry_run) {
    return comm.rank() == 0 ? dry_run(*prepared.setup, ranks_here(comm), options.json) : 0;
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
    return with_drill(config.execution, [&] {
      const engine::TrainResult result =
          engine::train(*prepared.setup, signals.told(), comm, local_rank(), events);
      if (comm.rank() == 0) {
        report(prepared.setup->config, result, options.json);
        write_report(options, prepared.setup->config, page);
      }
      return exit_code(config, result.interrupted, signals);
    });
  } catch (const engine::CommAborted&) {
    if (comm.rank() == 0) {
      throw;
    }
    return kExitSystem;
  }
}

}  // namespace

void add_train_command(CLI::App& app, Action& action, const ProcessGroups& groups) {
  auto options = std::make_shared<TrainFlags>();
  CLI::App* command = add_command(
      app,
      "train",
      "Trains a model; continues from the run's last checkpoint. Ranks are threads here,\n"
      "and processes with `torchrun --nproc-per-node N -m entrain train run.toml`.\n"
      "Without plan.profile, predicted times are those of analytic:cpu-2core.\n"
      "A checkpoint is written every 15 minutes and at the end. Ctrl-C or SIGTERM finishes the\n"
      "step, writes one and exits with 75: the same command continues. A second signal ends it at\n"
      "once, as does one before the first step (exit code 128 + its number).",
      "entrain train configs/demo.toml --set steps=100 --set plan.policy=sequential\n"
      "A checkpoint every 50 steps; the same command again resumes:\n"
      "  entrain train configs/demo.toml --set checkpoint.every_steps=50\n"
      "Fault drill (replica 1, lane 0 fails in step 5, as a bug would make it):\n"
      "  entrain train configs/demo.toml --set 'execution.fault_drill=[1, 0, 5]'");
  command->add_option("config", options->config, "run file (TOML)")->required();
  command->add_option("--set", options->overrides, "path.to.key=value, overrides the file")
      ->allow_extra_args(false);
  CLI::Option* resume = command->add_flag(
      "--resume",
      options->resume,
      "continue from the folder's checkpoint even if settings differ from its run's");
  command
      ->add_flag("--overwrite",
                 options->overwrite,
                 "start again in a folder that holds a run, which is moved to earlier-N in it")
      ->excludes(resume);
  command->add_flag("--dry-run",
                    options->dry_run,
                    "tables of the plan, its memory and the first assignment; no training");
  command->add_option("--report",
                      options->report,
                      "page to write at the end (HTML): losses, times, the traced step, drawn "
                      "(docs/report.md)");
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, groups, &action] {
    action = [options, groups] {
      return engine::without_torch_errors(
          [&] { return groups.ranks.empty() ? run(*options) : run_process(*options, groups); });
    };
  });
}

}  // namespace entrain::cli
