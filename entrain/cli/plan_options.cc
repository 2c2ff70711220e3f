#include "entrain/cli/plan_options.h"

#include <algorithm>
#include <array>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/study/baselines.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

// Those of a search for a cluster's plan, which nothing else reads.
constexpr std::array kOfClusterSearch = {"--simulations",
                                         "--search-evaluations",
                                         "--runners-up",
                                         "--threads",
                                         "--recompute",
                                         "--idle-devices",
                                         "--regret-batches",
                                         "--check-batches",
                                         "--explain"};
// And of others' planners on one.
constexpr std::array kOfCluster = {
    "--microbatch", "--context-parallel", "--shard-optimizer", "--reserve-gib", "--for-study"};

void add_cluster_options(CLI::App& command, PlanFlags& options) {
  command
      .add_option(
          "--planner",
          options.planner,
          "search, or how others plan: one-sample and four-samples (work ratio of that "
          "many), megatron-even (layers); with --cluster b-min (rounded shares and a formula), "
          "dflop (slowest mean stage), orchmllm (all modules on every device)")
      ->capture_default_str();
  command
      .add_option("--tensor-parallel",
                  options.tensor_parallel,
                  "of every module, for the planners one-sample, four-samples and megatron-even")
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command
      .add_option("--microbatch",
                  options.search.space.microbatches,
                  "samples of a slot; several for policies that do not choose the number of slots")
      ->delimiter(',')
      ->transform(whole(1, kMostSamples))
      ->capture_default_str();
  command
      .add_option("--context-parallel",
                  options.study.analytic.context_parallel,
                  "degrees that an analytic profile has; a measured one has its own; above 1 with "
                  "--for-study alone")
      ->delimiter(',')
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command
      .add_option("--simulations",
                  options.search.most_simulations,
                  "simulated steps that the search may spend on each part of the space "
                  "(docs/planning.md); 0 = until the best plan is proven (default: 28, 308 on up "
                  "to 32 devices; fewer where they take long)")
      ->transform(whole(0, 1'000'000));
  command
      .add_option("--search-evaluations",
                  options.search.score_evaluations,
                  "--evaluations while plans are compared")
      ->transform(whole(0, kMostEvaluations))
      ->capture_default_str();
  command
      .add_option("--runners-up",
                  options.search.runners_up,
                  "plans behind the best whose rank is proven too")
      ->transform(whole(0, 1000))
      ->capture_default_str();
  command
      .add_option("--shard-optimizer",
                  options.shard_optimizer,
                  "optimizer states shared out among replicas, with the exchanges of that: always, "
                  "never, or auto (with and without, the fastest; others' planners: without)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command
      .add_option("--threads",
                  options.search.threads,
                  "for guesses, assignments and checks of memory; the plan does not depend on it")
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command
      .add_option("--reserve-gib",
                  options.reserve_gib,
                  "memory of a device kept free for what no model counts")
      ->transform(number({0, 1e6}))
      ->capture_default_str();
  command
      .add_option(
          "--recompute",
          options.recompute,
          "layers that keep their input alone and run forward again in backward: auto (as few "
          "as fit, where memory is short and that is faster), never, full (all)")
      ->check(CLI::IsMember({"auto", "never", "full"}))
      ->capture_default_str();
  command.add_flag("--idle-devices",
                   options.search.space.idle_devices,
                   "also plans that leave devices idle though others use them all");
  command
      .add_option(
          "--regret-batches",
          options.regret_batches,
          "further batches, each re-planned by itself, to tell what a dynamic plan could gain")
      ->transform(whole(0, 10'000))
      ->capture_default_str();
  command
      .add_option("--check-batches",
                  options.check_batches,
                  "further global batches that the plan has to fit in memory, with the most "
                  "demanding of those behind; 0 = none (default: 100; fewer where they "
                  "take long on more than 32 devices)")
      ->transform(whole(0, 10'000));
  command.add_flag("--for-study",
                   options.for_study,
                   "plan for what no engine here runs, too (context parallelism); `entrain train` "
                   "refuses such a plan");
  command.add_flag("--explain", options.explain, "why not the neighbours of the best plan");
}

}  // namespace

std::vector<std::string> planner_names() {
  std::vector<std::string> names = baseline_planner_names();
  names.insert(names.begin(), "search");
  return names;
}

void add_plan_search_options(CLI::App& command, const std::shared_ptr<PlanFlags>& options) {
  add_study_options(command, options->study);
  add_hold(command, options->study);
  CLI::Option* cluster = command.get_option("--cluster");
  cluster->description("cluster file (TOML): plan all of it");
  command.add_option("--lanes", options->lanes, "instead: so many pipeline lanes per replica")
      ->transform(whole(1, 8, "; more: --cluster, a file of all devices (configs/clusters)"))
      ->excludes(cluster);
  command
      .add_option("--replicas",
                  options->replicas,
                  "full model copies (default: 1 with --lanes, any number with --cluster)")
      ->transform(whole(1, kMostReplicas));
  command.add_option("--num-slots", options->num_slots, "default microbatches per replica")
      ->transform(whole(1, kMostSlots))
      ->capture_default_str()
      ->excludes(cluster);
  command
      .add_option("--batches",
                  options->batches,
                  "global batches to draw and simulate (default: 3; 8 on a cluster of up to 32 "
                  "devices)")
      ->transform(whole(1, 1000));
  command.add_option("--policy", options->policy, "one of: " + join(policy_names()))
      ->capture_default_str();
  command.add_option("--schedule",
                     options->schedule,
                     "one of: " + join(schedule_names()) +
                         " (default: 1f1b; interleaved for --virtual-stages N, entrain for auto; "
                         "dip for --layout shared)");
  command
      .add_option_function<std::string>(
          "--virtual-stages",
          [options](const std::string& text) {
            options->virtual_stages = text == "auto" ? kAutoVirtualStages : std::stoi(text);
          },
          "stages of a module on each of its lanes, or auto: with and without, the fastest")
      ->transform(CLI::IsMember({"auto"}) | whole(1, 1024))
      ->default_str("1");
  add_layout(command, options->layout);
  command
      .add_option("--memory-mib", options->memory_mib, "activation memory per lane; 0 = no limit")
      ->transform(whole(0, kMostMebibytes))
      ->excludes(cluster);
  command.add_flag("--chunks", options->chunks, "allow LLM work in token ranges (chunks)");
  command
      .add_option("--evaluations",
                  options->evaluations,
                  "simulated replicas the `entrain` policy may spend on a step (default: 1,800 "
                  "for a few replicas, 11,313 for 128)")
      ->transform(whole(0, kMostEvaluations));
  add_cluster_options(command, *options);
  for (const char* name : kOfClusterSearch) {
    command.get_option(name)->needs(cluster);
  }
  for (const char* name : kOfCluster) {
    command.get_option(name)->needs(cluster);
  }
  command.add_option("--output,-o", options->output, "plan JSON to write");
  command.add_option("--report",
                     options->report,
                     "page to write (HTML): the plan, its runners-up and its first step, drawn");
}

void check_planner(const CLI::App& command, const PlanFlags& options) {
  parse_name(options.planner, planner_names(), "--planner");
  const std::vector<std::string> fixed = {"one-sample", "four-samples", "megatron-even"};
  if (std::find(fixed.begin(), fixed.end(), options.planner) == fixed.end()) {
    if (command.count("--tensor-parallel") > 0) {
      throw InvalidInput(concat(
          "--tensor-parallel: of the planners one-sample, four-samples and ",
          "megatron-even; --planner ",
          options.planner,
          options.study.cluster.empty() ? " has lanes of one device each" : " chooses it itself"));
    }
  }
  if (options.planner == "search") {
    return;
  }
  for (const char* name : kOfClusterSearch) {
    if (command.count(name) > 0) {
      throw InvalidInput(concat(name, ": of --planner search alone, not of ", options.planner));
    }
  }
}

}  // namespace entrain::cli
