// entrain plan: the static plan of a cluster, or the best split of a few lanes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <utility>

#include <malloc.h>
#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/runnable.h"
#include "entrain/core/planner/dynamic_regret.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_neighbours.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/planner/recompute_levels.h"
#include "entrain/core/planner/stable_batch.h"
#include "entrain/core/report/plan_page.h"
#include "entrain/core/report/report_page.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/study/baselines.h"
#include "entrain/core/study/further_batches.h"
#include "entrain/core/study/study_work.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/plan_options.h"
#include "entrain/cli/plan_report.h"
#include "entrain/cli/plan_study.h"

namespace entrain::cli {
namespace {

// What a search writes.
struct PlanOutputs {
  Output plan;
  Output report;
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
constexpr int kPatience = 11;

int batches_of(const PlanFlags& options, const Study& study) {
  return options.batches > 0 ? options.batches : default_batches(study);
}

// What lanes host and the schedules of that, for a LaneSplitRequest and a PlanSearchRequest.
template <class Request>
void set_lanes(const PlanFlags& options,
               SharedLanes& shared_lanes,
               int& virtual_stages,
               Request& request) {
  virtual_stages = options.virtual_stages;
  shared_lanes = lanes_of_layout(options.layout);
  if (!options.schedule.empty()) {
    request.schedule = parse_name(options.schedule, schedule_names(), "--schedule");
    if (request.schedule == "dip" && options.layout == "apart") {
      throw InvalidInput("--layout apart: schedule 'dip' needs lanes that all modules share");
    }
  } else if (shared_lanes == SharedLanes::kOnly) {
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

// While splits of a few lanes are compared.
int split_evaluations(const PlanFlags& options) {
  return options.evaluations >= 0 ? options.evaluations : PlanLimits().evaluations;
}

LaneSplitResult search(const PlanFlags& options, const Study& study) {
  LaneSplitRequest request;
  request.lanes = options.lanes;
  request.replicas = std::max(1, options.replicas);
  request.num_slots = options.num_slots;
  request.policy = parse_name(options.policy, policy_names(), "--policy");
  set_lanes(options, request.shared_lanes, request.virtual_stages, request);
  request.limits.bytes_per_lane = options.memory_mib << 20U;
  request.limits.chunks = options.chunks;
  request.limits.evaluations = split_evaluations(options);
  warn_of_window(study, batches_of(options, study), "--batches");
  LaneSplitResult result = search_split(study, request, batches_of(options, study));
  for (LaneSplit& split : result.splits) {
    set_evaluations(options, split.plan);
  }
  return result;
}

constexpr const char* kSplitTerms =
    "lanes: pipeline positions of each module, 2x3: 2 of 3 stages each, |: on the same lanes\n"
    "to best: step time over the fastest split's\n"
    "bound: a time that no assignment and no order of the schedule's operations on these lanes can "
    "beat; peak: activations\n";

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

// Of a search that found one.
template <class Result>
void write_found(const PlanFlags& options,
                 const PlanStudy& input,
                 const Result& result,
                 const Plan& plan,
                 const PlanOutputs& outputs) {
  write_plan(options, input, plan, outputs.plan);
  if (outputs.report.named()) {
    outputs.report.write(report_page(plan_report(input, result)));
    std::cerr << "report written to " << options.report << "\n";
  }
}

// Nothing keeps activations within a device unless a limit is given.
void warn_of_memory(const PlanFlags& options, const Study& study, const LaneSplit& best) {
  if (options.memory_mib > 0 || !study.origin.profile.starts_with("analytic:")) {
    return;
  }
  const std::int64_t memory = std::llround(device_model(study.profile.device).memory_gib * 0x1p30);
  if (memory > 0 && best.peak_bytes > memory) {
    print_warnings({concat("activations reach ",
                           format_bytes(best.peak_bytes),
                           " on a lane, a device '",
                           study.profile.device,
                           "' has ",
                           format_bytes(memory),
                           " for everything: give --memory-mib, or --cluster")});
  }
}

int run_lanes(const PlanFlags& options, const PlanOutputs& outputs) {
  PlanStudy input = load_plan_study(options.study, options.for_study);
  input.left_out.clear();  // lanes are of one device each
  const Study& study = input.study;
  const LaneSplitResult result = search(options, study);
  if (result.fits()) {
    warn_beyond_range(study, result.best());
    warn_of_memory(options, study, result.splits.front());
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
    std::string page = heading(input) + to_string(result, study.model) + kSplitTerms;
    if (result.fits()) {
      Plan scored = result.best();
      scored.limits.evaluations = split_evaluations(options);
      page += faster_schedule(
          study, std::move(scored), result.splits.front().mean_ns, batches_of(options, study));
      page += lanes_page(result.best());
    }
    print_text(page);
  }
  if (!result.fits()) {
    std::cerr << "entrain: no plan fits: " << result.reason << "\n";
    return kExitNo;
  }
  write_found(options, input, result, result.best(), outputs);
  return 0;
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
  request.policy = parse_name(options.policy, policy_names(), "--policy");
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
  request.whole_counts = false;
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

int run_cluster(const PlanFlags& options, const PlanOutputs& outputs) {
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
    Plan scored = result.best().plan;
    scored.limits.evaluations = request.score_evaluations;
    std::string page =
        heading(input) +
        plan_page(result,
                  request,
                  faster_schedule(study, std::move(scored), result.best().mean_ns, batches));
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
  write_found(options, input, result, result.best().plan, outputs);
  return 0;
}

// A plan as others make it. On a cluster its lanes are those that replicas and tensor parallelism
// leave.
int run_baseline(const PlanFlags& options, const Output& output) {
  BaselineRequest request;
  request.planner = options.planner;
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
  Plan scored = plan;
  scored.limits.evaluations =
      study.cluster.has_value() ? request.search.score_evaluations : split_evaluations(options);
  const int batches = batches_of(options, study);
  warn_of_window(study, batches, "--batches");
  const StepScore score = mean_step(study, std::move(scored), batches);
  if (options.json) {
    print_json({{"fits", true},
                {"planner", request.planner},
                {"note", study.note()},
                {"left_out", input.left_out},
                {"step_s", score.fits() ? Json(static_cast<double>(score.ns) * 1e-9) : Json()},
                {"plan", plan_json(input, plan)}});
  } else {
    print_text(heading(input) +
               (score.fits() ? concat(format_duration(std::chrono::nanoseconds{score.ns}),
                                      " a step, simulated on ",
                                      counted(batches, "batch"),
                                      " with the policy ",
                                      plan.policy,
                                      "\n")
                             : concat("no step simulated: ", score.reason, "\n")) +
               lanes_page(plan));
  }
  write_plan(options, input, plan, output);
  return 0;
}

int run(const PlanFlags& options) {
  Outputs outputs(input_files(options.study), options.force);
  const PlanOutputs files{outputs.open("--output", options.output, OutputKind::kPlan),
                          outputs.open("--report", options.report, OutputKind::kPage)};
  if (options.planner != "search") {
    if (files.report.named()) {
      throw InvalidInput("--report: of --planner search alone");
    }
    if (options.virtual_stages != 1 || options.layout == "shared") {
      throw InvalidInput("--virtual-stages and --layout shared: of --planner search alone");
    }
    return run_baseline(options, files.plan);
  }
  if (!options.study.cluster.empty()) {
    return run_cluster(options, files);
  }
  if (options.lanes == 0) {
    throw InvalidInput(
        "give --cluster cluster.toml for the search of a cluster's plan, or --lanes N "
        "for a pipeline of fixed length");
  }
  return run_lanes(options, files);
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
  add_plan_search_options(*command, options);
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, command, &action] {
    action = [options, command] {
      check_planner(*command, *options);
      return run(*options);
    };
  });
}

}  // namespace entrain::cli
