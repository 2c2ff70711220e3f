// entrain train: trains a run described by a TOML file.
#include <atomic>
#include <csignal>
#include <iostream>

#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"

#include "entrain/cli/command.h"
#include "entrain/engine/train/trainer.h"

namespace entrain::cli {
namespace {

std::atomic<bool> interrupted{false};

void on_interrupt(int) {
  interrupted = true;
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
  // float32 throughout, the optimizer not shared out.
  const std::vector<LaneState> states = lane_states(setup.model, setup.plan, {});
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
  std::cout << "predicted step time " << format_duration(first.predicted.makespan)
            << ", lower bound " << first.assignment.stats.lower_bound_s
            << " s; nothing was trained.\n";
  return 0;
}

int run(const Options& options) {
  const engine::RunSetup setup =
      engine::prepare_run(engine::read_run_config(options.config, options.overrides));
  for (const std::string& warning : setup.warnings) {
    std::cerr << "entrain: warning: " << warning << "\n";
  }
  if (options.dry_run) {
    return dry_run(setup, options.json);
  }
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  const engine::TrainResult result = engine::train(setup, interrupted);
  if (options.json) {
    Json report = {{"steps", result.steps},
                   {"first_loss", result.first_loss},
                   {"last_loss", result.last_loss},
                   {"interrupted", result.interrupted},
                   {"median_step_s", result.median_step_s},
                   {"median_predicted_step_s", result.median_predicted_s},
                   {"weights", result.weights.string()}};
    if (result.validation_loss.has_value()) {
      report["validation_loss"] = *result.validation_loss;
    }
    print_json(report);
    return 0;
  }
  std::cout << (result.interrupted ? "interrupted after " : "trained ") << result.steps
            << " steps: loss " << result.first_loss << " at the start, " << result.last_loss
            << " at the end\n";
  if (result.validation_loss.has_value()) {
    std::cout << "validation loss: " << *result.validation_loss << "\n";
  }
  std::cout << "run folder: " << setup.config.output << "\n";
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app,
                  "train",
                  "Trains a model on in-process ranks; Ctrl-C finishes the step and saves.",
                  "entrain train configs/demo.toml --set steps=100 --set plan.policy=sequential\n"
                  "Fault drill (replica 1, lane 0 fails in step 5, as a bug would make it):\n"
                  "  entrain train configs/demo.toml --set 'execution.fault_drill=[1, 0, 5]'");
  command->add_option("config", options->config, "run file (TOML)")->required();
  command->add_option("--set", options->overrides, "path.to.key=value, overrides the file")
      ->allow_extra_args(false);
  command->add_flag(
      "--dry-run", options->dry_run, "plan, memory and first assignment; no training");
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
