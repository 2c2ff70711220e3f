// entrain plan: the static plan of a cluster, or the best split of a few lanes.
#include <algorithm>
#include <cmath>
#include <iostream>

#include <malloc.h>
#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/runnable.h"
#include "entrain/core/planner/dynamic_regret.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_neighbours.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/planner/recompute_levels.h"
#include "entrain/core/planner/stable_batch.h"
#include "entrain/core/report/plan_page.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/study/baselines.h"
#include "entrain/core/study/further_batches.h"
#include "entrain/core/study/study_work.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/plan_study.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct PlanFlags {
  StudyInputs study;
  std::string output;
  int lanes = 0;
  int replicas = 0;
  int num_slots = 8;
  int batches = 0;  // default_batches()
  std::string policy = "entrain";
  std::string schedule;    // empty: what the lanes ask for
  int virtual_stages = 1;  // kAutoVirtualStages
  std::string layout;      // apart, shared; empty: what the schedule asks for
  std::int64_t memory_mib = 0;
  bool chunks = false;
  std::string recompute = "auto";
  std::string shard_optimizer = "auto";
  int evaluations = -1;  // default_evaluations()
  std::string planner = "search";
  int tensor_parallel = 1;   // of baseline planners
  PlanSearchRequest search;  // its counts and its space
  double reserve_gib = 0;
  int regret_batches = 0;
  int check_batches = -1;  // kCheckBatches, on many devices fewer where they take long
  bool for_study = false;  // also what this engine does not run
  bool explain = false;
  bool force = false;
  bool json = false;
};

constexpr int kCheckBatches = 100;

bool many_devices(const Study& study) {
  constexpr int kFewDevices = 32;
  return study.cluster->num_nodes * study.cluster->devices_per_node > kFewDevices;
}

// Few batches mislead (a plan chosen by three lost 3 % to one chosen by eight on 16 devices); on
// many devices a simulated step takes longer, and eight of each plan leave time for few plans.
int default_batches(const Study& study) {
  return !study.cluster.has_value() || many_devices(study) ? 3 : 8;
}

// On a cluster of few devices, whose plans are simulated on more batches.
constexpr int kPatience = 4;

int batches_of(const PlanFlags& options, const Study& study) {
  return options.batches > 0 ? options.batches : default_batches(study);
}

// What lanes host and the schedules of that, for a LaneSplitRequest and a PlanSearchRequest.
template <class Request>
void set_lanes(const PlanFlags& options,
               bool& shared_lanes,
               int& virtual_stages,
               Request& request) {
  virtual_stages = options.virtual_stages;
  shared_lanes = options.layout == "shared";
  if (!options.schedule.empty()) {
    request.schedule = parse_names(options.schedule, schedule_names(), "--schedule").front();
    if (request.schedule == "dip" && options.layout == "apart") {
      throw InvalidInput("--layout apart: schedule 'dip' needs lanes that all modules share");
    }
  } else if (shared_lanes) {
    request.schedule = "dip";
  } else if (virtual_stages > 1) {
    request.schedule = "interleaved";
  } else if (virtual_stages == kAutoVirtualStages) {
    request.schedule = "entrain";
  }
}

// Of runs; plans are compared with fewer.
void set_evaluations(const PlanFlags& options, Plan& plan) {
  plan.limits.evaluations =
      options.evaluations >= 0 ? options.evaluations : default_evaluations(plan.replicas);
}

LaneSplitResult search(const PlanFlags& options, const Study& study) {
  LaneSplitRequest request;
  request.lanes = options.lanes;
  request.replicas = std::max(1, options.replicas);
  request.num_slots = options.num_slots;
  request.policy = parse_names(options.policy, policy_names(), "--policy").front();
  set_lanes(options, request.shared_lanes, request.virtual_stages, request);
  request.limits.bytes_per_lane = options.memory_mib << 20U;
  request.limits.chunks = options.chunks;
  if (options.evaluations >= 0) {
    request.limits.evaluations = options.evaluations;
  }
  LaneSplitResult result = search_split(study, request, batches_of(options, study));
  for (LaneSplit& split : result.splits) {
    set_evaluations(options, split.plan);
  }
  return result;
}

constexpr const char* kSplitTerms =
    "lanes: pipeline positions of each module, 2x3: 2 of 3 stages each, |: on the same lanes\n"
    "to best: step time over the fastest split's\n"
    "bound: a time that no assignment and no order on these lanes can beat; peak: activations\n";

void write_plan(const PlanFlags& options,
                const PlanStudy& input,
                const Plan& plan,
                const Output& output) {
  if (!input.for_study && !input.study.table.has_value()) {
    check_runnable(plan, input.study.model, "plan");
  }
  output.write(json_text(plan_json(input, plan), 1) + "\n");
  if (output.named() && !options.json) {
    out() << "written to " << options.output << "\n";
  }
}

int run_lanes(const PlanFlags& options, const Output& output) {
  const PlanStudy input = load_plan_study(options.study, options.for_study);
  const Study& study = input.study;
  const LaneSplitResult result = search(options, study);
  if (result.fits()) {
    warn_beyond_range(study, result.best());
  }
  if (options.json) {
    Json report = {{"fits", result.fits()},
                   {"reason", result.reason},
                   {"note", study.note()},
                   {"left_out", input.left_out},
                   {"margin", result.margin},
                   {"modules", study.module_names()},
                   {"splits", splits_json(result)}};
    if (result.fits()) {
      report["plan"] = plan_json(input, result.best());
    }
    print_json(report);
  } else {
    print_text(heading(input) + to_string(result, study.model) + kSplitTerms +
               (result.fits() ? lanes_page(result.best()) : ""));
  }
  if (!result.fits()) {
    std::cerr << "entrain: no plan fits: " << result.reason << "\n";
    return kExitNo;
  }
  write_plan(options, input, result.best(), output);
  return 0;
}

std::vector<std::string> planner_names() {
  std::vector<std::string> names = baseline_planner_names();
  names.insert(names.begin(), "search");
  return names;
}

RecomputeRule recompute_rule(const std::string& name) {
  if (name == "never") {
    return RecomputeRule::kNever;
  }
  return name == "full" ? RecomputeRule::kFull : RecomputeRule::kAuto;
}

PlanSearchRequest cluster_request(const PlanFlags& options) {
  PlanSearchRequest request = options.search;
  request.recompute = recompute_rule(options.recompute);
  request.state.shard_optimizer = options.shard_optimizer == "always";
  request.any_optimizer = options.shard_optimizer == "auto";
  request.policy = parse_names(options.policy, policy_names(), "--policy").front();
  set_lanes(options, request.space.shared_lanes, request.space.virtual_stages, request);
  request.limits.chunks = options.chunks;
  request.space.replicas = options.replicas;
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  request.reserve_bytes = std::llround(options.reserve_gib * kGibibyte);
  return request;
}

// Over batches after those used to choose the plan.
DynamicRegret regret_of(const PlanFlags& options,
                        const Study& study,
                        PlanSearchRequest request,
                        const Plan& plan) {
  constexpr int kSimulations = 8;  // of each batch's search
  request.first_step = batches_of(options, study);
  request.most_simulations = kSimulations;
  complete_request(study, options.regret_batches, request);
  Progress progress("batches re-planned", options.regret_batches);
  return dynamic_regret(request, plan, [&progress](int) { progress.advance(); });
}

// From how many samples on batches ask for one split of a replica's devices; 0 where no size up to
// all samples settles.
int b_min_of(const Study& study, const PlanShape& config) {
  StableBatchRequest request;
  request.devices = devices_per_replica(config);
  if (request.devices < study.model.num_modules()) {
    return 0;  // nothing to split
  }
  request.work_ns = study_work(study);
  request.seed = study.inputs.seed;
  return find_study_batch(std::move(request)).b_min;
}

// Costs of a batch of many units take tens of MiB, freed and asked for again with every simulated
// step. The C library would hand them back to the system each time, which takes a quarter of a
// search over videos.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kBytes);
  mallopt(M_TRIM_THRESHOLD, kBytes);
#endif
}

int run_cluster(const PlanFlags& options, const Output& output) {
  keep_freed_memory();
  const PlanStudy input = load_plan_study(options.study, options.for_study);
  const Study& study = input.study;
  PlanSearchRequest request = cluster_request(options);
  request.patience = many_devices(study) ? 1 : kPatience;
  Progress progress(
      "steps simulated, of a budget",
      request.most_simulations >= 0 ? request.most_simulations : default_budget(request.patience));
  request.progress = [&progress](int simulated) { progress.reach(simulated); };
  const int batches = batches_of(options, study);
  complete_request(study, batches, request);
  if (study.cluster->memory_bytes > 0) {
    const bool by_default = options.check_batches < 0;
    request.further =
        further_batches(study, batches, by_default ? kCheckBatches : options.check_batches);
    request.further.may_stop = by_default && many_devices(study);
  }
  PlanSearchResult result = search_plans(request);
  for (PlanCandidate& found : result.plans) {
    set_evaluations(options, found.plan);
  }
  progress.finish();
  request.progress = nullptr;
  std::vector<PlanNeighbour> neighbours;
  if (options.explain && result.fits()) {
    request.state.shard_optimizer = result.best().plan.shard_optimizer;
    neighbours = judge_neighbours(request, result.best().config, total_ns(result.best()));
  }
  if (result.fits()) {
    PlanCandidate& best = result.plans.front();
    best.plan.certificate.b_min = b_min_of(study, best.config);
  }
  DynamicRegret regret;
  if (options.regret_batches > 0 && result.fits()) {
    regret = regret_of(options, study, request, result.best().plan);
    result.plans.front().plan.certificate.dynamic_regret = regret.regret();
  }
  if (options.json) {
    Json report = result_json(result, input);
    report["neighbours"] = neighbours_json(neighbours, study.model);
    if (regret.batches > 0) {
      report["regret"] = {{"batches", regret.batches},
                          {"static_s", static_cast<double>(regret.static_ns) * 1e-9},
                          {"dynamic_s", static_cast<double>(regret.dynamic_ns) * 1e-9},
                          {"lower_bound_s", static_cast<double>(regret.bound_ns) * 1e-9},
                          {"regret", regret.regret()},
                          {"most", regret.most()}};
    }
    print_json(report);
  } else if (result.fits()) {
    std::string page = heading(input) + plan_page(result, request);
    if (regret.batches > 0) {
      page += "\n" + regret_page(regret);
    }
    if (!neighbours.empty()) {
      page += "\n" + neighbours_page(neighbours, result.best(), request);
    }
    print_text(page);
  }
  if (!result.fits()) {
    std::cerr << "entrain: no plan fits: " << result.reason << "\n";
    return kExitNo;
  }
  write_plan(options, input, result.best().plan, output);
  return 0;
}

// A plan as others make it. On a cluster its lanes are those that replicas and tensor parallelism
// leave.
int run_baseline(const PlanFlags& options, const Output& output) {
  BaselineRequest request;
  request.planner = parse_names(options.planner, planner_names(), "--planner").front();
  request.replicas = std::max(1, options.replicas);
  request.num_slots = options.num_slots;
  request.tensor_parallel = options.tensor_parallel;
  request.lanes = options.lanes;
  request.search = cluster_request(options);
  const PlanStudy input = load_plan_study(options.study, options.for_study);
  const Study& study = input.study;
  if (study.cluster.has_value()) {
    complete_request(study, batches_of(options, study), request.search);
    const int devices = study.cluster->num_nodes * study.cluster->devices_per_node;
    request.lanes = devices / (request.replicas * options.tensor_parallel);
    const int per_slot = request.replicas * options.search.space.microbatches.front();
    request.num_slots = std::max(1, (options.study.global_batch + per_slot - 1) / per_slot);
  }
  const Plan plan = baseline_plan(study, request);
  warn_beyond_range(study, plan);
  if (options.json) {
    print_json({{"fits", true},
                {"planner", request.planner},
                {"note", study.note()},
                {"left_out", input.left_out},
                {"plan", plan_json(input, plan)}});
  } else {
    print_text(heading(input) + lanes_page(plan));
  }
  write_plan(options, input, plan, output);
  return 0;
}

int run(const PlanFlags& options) {
  Outputs outputs(input_files(options.study), options.force);
  const Output output = outputs.open("--output", options.output, OutputKind::kPlan);
  if (options.planner != "search") {
    if (options.virtual_stages != 1 || options.layout == "shared") {
      throw InvalidInput("--virtual-stages and --layout shared: of --planner search alone");
    }
    return run_baseline(options, output);
  }
  if (!options.study.cluster.empty()) {
    return run_cluster(options, output);
  }
  if (options.lanes == 0) {
    throw InvalidInput(
        "give --cluster cluster.toml for the search of a cluster's plan, or --lanes N "
        "for a pipeline of fixed length");
  }
  return run_lanes(options, output);
}

void add_cluster_options(CLI::App& command, PlanFlags& options) {
  command
      .add_option("--planner",
                  options.planner,
                  "search, or how others plan: one-sample and four-samples (work ratio of that "
                  "many), b-min (rounded shares and a formula; --cluster), megatron-even (layers)")
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
                  "(docs/planning.md); 0 = until the best plan is proven (default: 64, 256 on up "
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
                  "configurations that are guessed at a time; the plan does not depend on it")
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

void add_plan_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanFlags>();
  CLI::App* command = add_command(
      app,
      "plan",
      "Finds the static plan: of a cluster by proven bounds and simulation, or of a pipeline of up "
      "to 8 lanes by simulating every split.",
      "entrain plan --cluster cluster.toml --index train.csv --model model.toml --global-batch 512 "
      "--explain -o plan.json\n"
      "  entrain plan --lanes 4 --virtual-stages auto --index train.csv --model model.toml "
      "--global-batch 64 -o plan.json");
  add_study_options(*command, options->study);
  add_hold(*command, options->study);
  CLI::Option* cluster = command->get_option("--cluster");
  cluster->description("cluster file (TOML): plan all of it");
  command->add_option("--lanes", options->lanes, "instead: so many pipeline lanes per replica")
      ->transform(whole(1, 8))
      ->excludes(cluster);
  command
      ->add_option("--replicas",
                   options->replicas,
                   "full model copies (default: 1 with --lanes, any number with --cluster)")
      ->transform(whole(1, kMostReplicas));
  command->add_option("--num-slots", options->num_slots, "default microbatches per replica")
      ->transform(whole(1, kMostSlots))
      ->capture_default_str()
      ->excludes(cluster);
  command
      ->add_option("--batches",
                   options->batches,
                   "global batches to draw and simulate (default: 3; 8 on a cluster of up to 32 "
                   "devices)")
      ->transform(whole(1, 1000));
  command->add_option("--policy", options->policy, "one of: " + join(policy_names()))
      ->capture_default_str();
  command->add_option("--schedule",
                      options->schedule,
                      "one of: " + join(schedule_names()) +
                          " (default: 1f1b; interleaved for --virtual-stages N, entrain for auto; "
                          "dip for --layout shared)");
  command
      ->add_option_function<std::string>(
          "--virtual-stages",
          [options](const std::string& text) {
            options->virtual_stages = text == "auto" ? kAutoVirtualStages : std::stoi(text);
          },
          "stages of a module on each of its lanes, or auto: with and without, the fastest")
      ->transform(CLI::IsMember({"auto"}) | whole(1, 1024))
      ->default_str("1");
  command
      ->add_option("--layout",
                   options->layout,
                   "apart: modules have lanes of their own; shared: every lane hosts one stage of "
                   "every module (default: apart; shared for --schedule dip)")
      ->check(CLI::IsMember({"apart", "shared"}));
  command
      ->add_option("--memory-mib", options->memory_mib, "activation memory per lane; 0 = no limit")
      ->transform(whole(0, kMostMebibytes))
      ->excludes(cluster);
  command->add_flag("--chunks", options->chunks, "allow LLM work in token ranges (chunks)");
  command
      ->add_option("--evaluations",
                   options->evaluations,
                   "simulated replicas the `entrain` policy may spend on a step (default: 1,000 "
                   "for a few replicas, 11,313 for 128)")
      ->transform(whole(0, kMostEvaluations));
  add_cluster_options(*command, *options);
  command->add_option("--output,-o", options->output, "plan JSON to write");
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
