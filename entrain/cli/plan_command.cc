// entrain plan: the best split of a few lanes among encoder and LLM, by simulating all of them.
#include <iostream>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct Options {
  StudyInputs study;
  std::string output;
  int lanes = 0;
  int replicas = 1;
  int num_slots = 8;
  int batches = 3;
  std::string policy = "entrain";
  std::string schedule = "1f1b";
  std::int64_t memory_mib = 0;
  int evaluations = PlanLimits{}.evaluations;
  bool json = false;
};

LaneSplitResult search(const Options& options, const Study& study) {
  LaneSplitRequest request;
  request.lanes = options.lanes;
  request.replicas = options.replicas;
  request.num_slots = options.num_slots;
  request.policy = parse_names(options.policy, policy_names(), "--policy").front();
  request.schedule = parse_names(options.schedule, schedule_names(), "--schedule").front();
  request.limits.bytes_per_lane = options.memory_mib << 20U;
  request.limits.evaluations = options.evaluations;
  return search_split(study, request, options.batches);
}

Json splits_json(const LaneSplitResult& result) {
  Json splits = Json::array();
  for (const LaneSplit& split : result.splits) {
    splits.push_back({{"lanes", split.lanes_of},
                      {"step_s", static_cast<double>(split.mean_ns) * 1e-9},
                      {"lower_bound_s", static_cast<double>(split.bound_ns) * 1e-9},
                      {"peak_bytes", split.peak_bytes},
                      {"reason", split.reason}});
  }
  return splits;
}

int run(const Options& options) {
  const Study study = load_study(options.study);
  const LaneSplitResult result = search(options, study);
  if (options.json) {
    Json report = {{"fits", result.fits()},
                   {"reason", result.reason},
                   {"margin", result.margin},
                   {"splits", splits_json(result)}};
    if (result.fits()) {
      report["plan"] = to_json(result.best());
    }
    print_json(report);
  } else {
    std::cout << to_string(result, study.model);
  }
  if (!result.fits()) {
    std::cerr << "entrain: no plan fits: " << result.reason << "\n";
    return kExitNo;
  }
  if (!options.output.empty()) {
    write_file(options.output, to_json(result.best()).dump(1) + "\n");
    if (!options.json) {
      std::cout << "written to " << options.output << "\n";
    }
  }
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app,
      "plan",
      "Finds the best split of up to 8 lanes among the modules by simulating every one.",
      "entrain plan --lanes 4 --index train.csv --model model.toml --profile profile.json "
      "--global-batch 64 -o plan.json");
  add_study_options(*command, options->study);
  command->add_option("--lanes", options->lanes, "pipeline lanes per replica")
      ->required()
      ->check(CLI::Range(1, 8));
  command->add_option("--replicas", options->replicas, "full model copies")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--num-slots", options->num_slots, "default microbatches per replica")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batches", options->batches, "global batches to draw and simulate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--policy", options->policy, "one of: " + join(policy_names()))
      ->capture_default_str();
  command->add_option("--schedule", options->schedule, "one of: " + join(schedule_names()))
      ->capture_default_str();
  command
      ->add_option("--memory-mib", options->memory_mib, "activation memory per lane; 0 = no limit")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--evaluations",
                   options->evaluations,
                   "simulated replicas the `entrain` policy may spend on a step")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--output,-o", options->output, "plan JSON to write");
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
