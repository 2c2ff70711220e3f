// entrain train: trains a run described by a TOML file.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include <unistd.h>

#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"

#include "entrain/cli/train_command.h"
#include "entrain/engine/comm/c10d_comm.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/dumps.h"
#include "entrain/engine/train/processes.h"
#include "entrain/engine/train/trainer.h"

namespace entrain::cli {
namespace {

std::atomic<bool> interrupted{false};

// Ends the run after the step in progress; a second Ctrl-C ends it at once.
void on_signal(int signal) {
  constexpr std::string_view kNote =
      "entrain: finishing the step, then a checkpoint; Ctrl-C again ends the run at once\n";
  if (!interrupted.exchange(true)) {
    // The one way to write that a signal handler may use; nothing can be done where it fails.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kNote.data(), kNote.size());
  }
  engine::request_dumps();  // of a run that cannot finish its step
  if (signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
  }
}

// Of threads that cannot be stopped: nothing is left to unwind.
void give_up(const std::string& why) {
  std::cerr << "entrain: " << why << std::endl;
  std::_Exit(kExitSystem);
}

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  bool dry_run = false;
  bool json = false;
};

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
  std::cout << "plan: " << to_json(setup.plan).dump(1) << "\n";
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
  std::cout << "first assignment: " << assignment.dump() << "\n";
  if (setup.resume.has_value()) {
    std::cout << "training would go on at step " << setup.resume->manifest.step << " from "
              << setup.resume->checkpoint.string() << "\n";
  }
  std::cout << "predicted step time " << format_duration(first.predicted.makespan)
            << ", lower bound " << first.assignment.stats.lower_bound_s
            << " s; nothing was trained.\n";
  return 0;
}

void print_end(const engine::RunConfig& config, const engine::TrainResult& result) {
  const std::int64_t reached = result.first_step + result.steps;
  if (result.steps == 0) {
    std::cout << "nothing left to train: all " << reached << " steps are done\n";
    return;
  }
  std::cout << (result.interrupted ? "stopped after step " : "trained to step ") << reached
            << " of " << config.steps << ": loss " << result.first_loss
            << (result.first_step > 0 ? " where it resumed, " : " at the start, ")
            << result.last_loss << " at the end\n";
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
  const engine::RunSetup setup =
      engine::prepare_run(engine::read_run_config(options.config, options.overrides));
  print_warnings(setup);
  if (options.dry_run) {
    return dry_run(setup, options.json);
  }
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  report(setup.config, engine::train(setup, interrupted, give_up), options.json);
  return 0;
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

// One rank of a run whose ranks are processes. Rank 0 speaks for all; another does when it failed
// itself.
int run_process(const Options& options, const ProcessGroups& groups) {
  engine::RunConfig config;
  std::exception_ptr unreadable;
  try {
    config = engine::read_run_config(options.config, options.overrides);
  } catch (...) {
    unreadable = std::current_exception();
  }
  const std::chrono::duration<double> deadline(config.execution.deadline_seconds);
  engine::C10dComm comm(groups.ranks,
                        std::chrono::duration_cast<std::chrono::milliseconds>(deadline));
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  const engine::Prepared prepared = engine::prepare_together(comm, [&] {
    if (unreadable != nullptr) {
      std::rethrow_exception(unreadable);
    }
    engine::RunSetup setup = engine::prepare_run(config);
    engine::device_of(config.execution.device, local_rank());  // or nobody begins
    return setup;
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
    const engine::TrainResult result =
        engine::train(*prepared.setup, interrupted, comm, local_rank());
    if (comm.rank() == 0) {
      report(config, result, options.json);
    }
  } catch (const engine::CommAborted&) {
    if (comm.rank() == 0) {
      throw;
    }
    return kExitSystem;
  }
  return 0;
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
      "Ctrl-C or SIGTERM finishes the step and writes one.",
      "entrain train configs/demo.toml --set steps=100 --set plan.policy=sequential\n"
      "A checkpoint every 50 steps; the same command again resumes:\n"
      "  entrain train configs/demo.toml --set checkpoint.every_steps=50\n"
      "Fault drill (replica 1, lane 0 fails in step 5, as a bug would make it):\n"
      "  entrain train configs/demo.toml --set 'execution.fault_drill=[1, 0, 5]'");
  command->add_option("config", options->config, "run file (TOML)")->required();
  command->add_option("--set", options->overrides, "path.to.key=value, overrides the file")
      ->allow_extra_args(false);
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
