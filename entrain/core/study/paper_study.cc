#include "entrain/core/study/paper_study.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/planner/single_sample_plan.h"
#include "entrain/core/planner/stable_batch.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/step/step.h"
#include "entrain/core/study/baselines.h"
#include "entrain/core/study/cases.h"
#include "entrain/core/study/made_up.h"
#include "entrain/core/study/paper_batches.h"
#include "entrain/core/study/paper_contests.h"
#include "entrain/core/study/study.h"
#include "entrain/core/study/study_work.h"
#include "entrain/core/study/turned_out.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// The paper's setting.
constexpr int kLanes = 8;
constexpr int kReplicas = 4;
constexpr int kTensorParallel = 2;
constexpr int kSlots = 32;
constexpr int kGlobalBatch = 512;
constexpr int kPlanBatches = 3;

using Names = std::vector<std::string>;

struct Setting {
  std::string data;
  std::string model;    // "1b", "3b"
  std::string variant;  // "", "frozen", "lora"
  bool audio = false;

  [[nodiscard]] std::string name() const {
    std::string text = data + "." + model + (variant.empty() ? "" : "." + variant);
    std::replace(text.begin(), text.end(), '_', '-');
    return text;
  }
};

fs::path model_file(const PaperStudy& study, const Setting& setting) {
  return study.models /
         fmt::format("qwen2.5-vl-{}llama-{}.toml", setting.audio ? "audio-" : "", setting.model);
}

Study open(const PaperStudy& study, const Setting& setting, int global_batch, int seed = 0) {
  StudyInputs inputs;
  const bool made_up = is_made_up(setting.data);
  inputs.index = ((made_up ? study.made_up : study.manifests) / (setting.data + ".csv")).string();
  inputs.model = model_file(study, setting).string();
  inputs.cluster = study.cluster.string();
  inputs.global_batch = global_batch;
  inputs.seed = at(seed);
  inputs.analytic = {{1, kTensorParallel}, {1}};
  if (setting.variant == "frozen") {
    inputs.freeze = setting.audio ? Names{"vision", "audio"} : Names{"vision"};
  } else if (setting.variant == "lora") {
    inputs.lora = "16:q_proj,v_proj";
  }
  return load_study(inputs);
}

// Whether every lane hosts a stage of every module.
bool shares_lanes(const Plan& plan) {
  return plan.lanes.front().size() == plan.modules.size();
}

// "3:5"; "8:8 on the same lanes"
std::string split_of(const Plan& plan) {
  std::vector<int> stages;
  for (const ModulePlan& module : plan.modules) {
    stages.push_back(static_cast<int>(module.stages.size()));
  }
  return split_text(stages) + (shares_lanes(plan) ? " on the same lanes" : "");
}

// "3:5, TP 2:4, DP 8"
std::string degrees_of(const Plan& plan) {
  std::vector<std::string> degrees;
  for (const ModulePlan& module : plan.modules) {
    degrees.push_back(std::to_string(module.tensor_parallel));
  }
  return fmt::format("{}, TP {}, DP {}", split_of(plan), join(degrees, ":"), plan.replicas);
}

SingleSampleRequest paper_request(const Study& study) {
  SingleSampleRequest request;
  request.model = &study.model;
  request.profile = &study.profile;
  request.lanes = kLanes;
  request.replicas = kReplicas;
  request.num_slots = kSlots;
  request.tensor_parallel = kTensorParallel;
  return request;
}

// Every way to split, lanes of each module's own and the same lanes for all.
LaneSplitResult split_for(const Study& study,
                          int replicas,
                          int lanes = kLanes,
                          const std::string& schedule = "1f1b") {
  LaneSplitRequest request;
  request.lanes = lanes;
  request.replicas = replicas;
  request.num_slots = kSlots;
  request.tensor_parallel = kTensorParallel;
  request.schedule = schedule;
  request.shared_lanes = SharedLanes::kToo;
  return search_split(study, request, kPlanBatches);
}

Plan best_of(const LaneSplitResult& result) {
  if (!result.fits()) {
    throw NothingFits("no split fits: " + result.reason);
  }
  return result.best();
}

// DIP's: every lane hosts a stage of every module, cut by four samples.
Plan colocated_plan(const Study& study, std::span<const SampleWork> batch) {
  LaneSplitRequest request;
  request.model = &study.model;
  request.profile = &study.profile;
  request.batches = {{batch.begin(), batch.begin() + 4}};
  request.lanes = kLanes;
  request.tensor_parallel = kTensorParallel;
  request.policy = "sequential";
  request.schedule = "dip";
  Plan plan = best_of(plan_lane_split(request));
  plan.replicas = kReplicas;
  plan.num_slots = kSlots;
  plan.certificate = {};
  return plan;
}

// Of all devices: how many replicas and which degrees is the planner's choice.
PlanSearchRequest cluster_request(const Study& study, const std::string& policy) {
  PlanSearchRequest request;
  complete_request(study, kPlanBatches, request);
  request.policy = policy;
  request.space.microbatches = {kGlobalBatch / (kReplicas * kSlots)};
  return request;
}

// DFLOP's, or OrchMLLM's, whose optimizer is sharded.
Plan peer_plan(const Study& study, const std::string& planner) {
  BaselineRequest request{.planner = planner, .search = cluster_request(study, planner)};
  request.search.state.shard_optimizer = planner == "orchmllm";
  return baseline_plan(study, request);
}

// What `entrain plan --cluster` finds with every layer recomputed, as all contestants do where
// memory counts; where it does not, nobody does.
Plan searched_plan(const PaperStudy& paper, const Study& study) {
  PlanSearchRequest request = cluster_request(study, "entrain");
  request.schedule = "entrain";
  request.recompute = RecomputeRule::kFull;
  request.any_optimizer = true;
  request.space.shared_lanes = SharedLanes::kToo;
  request.threads = paper.threads;
  const PlanSearchResult result = search_plans(request);
  if (!result.fits()) {
    throw NothingFits("no plan fits: " + result.reason);
  }
  Plan plan = result.best().plan;
  plan.limits.evaluations = default_evaluations(plan.replicas);
  for (ModulePlan& module : plan.modules) {
    module.recompute.clear();
  }
  return plan;
}

bool is_own_and_fits(const LaneSplit& split) {
  return split.reason.empty() && split.shape.layout == ModuleLayout::kOwnLanes;
}

// Plans by planner. `found`: our split of the paper's lanes, of which the first is `ours`.
std::vector<Contest> contests_of(const std::map<std::string, Plan>& plans,
                                 const LaneSplitResult& found) {
  const Names all = {
      "sequential", "disttrain", "dflop", "lpt-2d", "orchmllm", "entrain-paper", "entrain"};
  const Names schedules = {"1f1b", "1f1b-eager", "zb-h1", "entrain"};
  const Names least_and_most = {"1f1b", "entrain"};  // of freedom
  const Plan& ours = plans.at("ours");
  std::vector<Contest> contests = {
      {"ours", ours, all, schedules, true},
      {"searched", plans.at("searched"), all, least_and_most, true},
      {"b-min", plans.at("b-min"), {"disttrain", "entrain-paper", "entrain"}, schedules, false},
      {"one-sample", ours, {"disttrain"}, {"1f1b"}, false},
      {"dip", plans.at("dip"), {"sequential", "lpt-2d"}, {"dip"}, false},
      {"dflop", plans.at("dflop"), {"dflop", "lpt-2d", "entrain"}, least_and_most, true},
      {"orchmllm", plans.at("orchmllm"), {"orchmllm", "lpt-2d", "entrain"}, least_and_most, true}};
  if (const auto own = std::find_if(found.splits.begin(), found.splits.end(), is_own_and_fits);
      shares_lanes(ours) && own != found.splits.end()) {
    contests.push_back({"apart", own->plan, all, schedules, true});
  }
  return contests;
}

Json run_setting(const PaperStudy& paper, const Setting& setting) {
  const Study study = open(paper, setting, kGlobalBatch);
  const StudyBatch batch = draw_batch(study, 0);
  const SingleSampleRequest request = paper_request(study);
  const LaneSplitResult splits = split_for(study, kReplicas);
  // For the schedule that ours runs: which lanes are best depends on it.
  const LaneSplitResult found = split_for(study, kReplicas, kLanes, "entrain");
  const std::map<std::string, Plan> plans = {
      {"ours", best_of(found)},
      {"searched", searched_plan(paper, study)},
      {"b-min", few_samples_plan(request, batch.work)},
      {"four-samples", few_samples_plan(request, std::span(batch.work).first(4))},
      {"dip", colocated_plan(study, batch.work)},
      {"dflop", peer_plan(study, "dflop")},
      {"orchmllm", peer_plan(study, "orchmllm")}};

  Json sensitivity = Json::object();  // where the plan's policy is `entrain` under `1f1b`
  for (const LaneSplit& split : splits.splits) {
    if (is_own_and_fits(split)) {
      sensitivity[split_of(split.plan)] = 1e-9 * static_cast<double>(split.mean_ns);
    }
  }
  Json drawn = Json::object();
  for (const CountedPlan& counted :
       single_sample_plans(request, std::span(batch.work).first(kOneSampleDraws))) {
    const std::string split = split_of(counted.plan);
    drawn[split] = drawn.value(split, 0) + counted.count;
  }
  Json stages = {{"one-sample", drawn}};
  for (const char* planner : {"four-samples", "b-min", "ours"}) {
    stages[planner] = split_of(plans.at(planner));
  }
  for (const char* planner : {"dflop", "orchmllm", "searched"}) {
    stages[planner] = degrees_of(plans.at(planner));
  }
  const WorkTimes work = study_work(study);
  return {
      {"kind", "setting"},
      {"data", setting.data},
      {"model", setting.model},
      {"variant", setting.variant},
      {"made_up", is_made_up(setting.data)},
      {"samples", study.ids.size()},
      {"modules", study.module_names()},
      {"stages", stages},
      {"sensitivity", sensitivity},
      {"sizes",
       {batch_splits(work, kLanes, kGlobalBatch), batch_splits(work, 2 * kLanes, kGlobalBatch)}},
      {"ratios", ratios_by_size(work)},
      {"rows",
       contest_rows(paper.quick,
                    paper.threads,
                    study,
                    open(paper, setting, kGlobalBatch, 1),
                    contests_of(plans, found))}};
}

// The paper's figure 6: a pipeline of four stages, 16 microbatches of 4.
Json run_bubbles(const PaperStudy& paper, const Setting& setting) {
  constexpr int kFewLanes = 4;
  constexpr int kFewSlots = 16;
  const Study study = open(paper, setting, 4 * kFewSlots);
  CasesRequest request;
  request.study = &study;
  request.plan = best_of(split_for(study, 1, kFewLanes));
  request.plan.num_slots = kFewSlots;
  request.policies = {"sequential", "disttrain", "entrain-paper", "entrain"};
  request.schedules = {"1f1b", "1f1b-eager", "entrain"};
  request.steps = paper.quick ? 10 : 100;
  request.memory = parse_memory_rule("free");
  request.threads = paper.threads;
  Json rows = Json::array();
  add_rows(request, run_cases(request), "ours", "free", rows);
  return {{"kind", "bubbles"}, {"data", setting.data}, {"model", setting.model}, {"rows", rows}};
}

// Assigned by nominal costs, replayed by others under `1f1b`, whose order no cost can change.
Json run_wrong_costs(const PaperStudy& paper, const Setting& setting) {
  const Study study = open(paper, setting, kGlobalBatch);
  Plan plan = best_of(split_for(study, kReplicas));
  plan.schedule = "1f1b";
  const Names policies = {
      "sequential", "disttrain", "dflop", "lpt-2d", "orchmllm", "entrain-paper", "entrain"};
  const int steps = paper.quick ? 1 : 3;
  const int draws = paper.quick ? 2 : 8;
  Json rows = Json::array();
  for (int step = 0; step < steps; ++step) {
    const StudyStep one = make_step(study, plan, parse_memory_rule("free"), step);
    std::vector<StepAssignment> assignments;
    for (const std::string& policy : policies) {
      AssignRequest request;
      request.plan = &one.plan;
      request.costs = &one.costs;
      request.step = step;
      request.seed = study.inputs.seed;
      assignments.push_back(assign(policy, request));
    }
    const auto replay = [&](const std::string& what, double spread, int draw) {
      Json times = Json::object();
      for (std::size_t i = 0; i < policies.size(); ++i) {
        const StepCosts costs =
            what == "costs" ? drawn_costs(one.costs, spread, at(1000 * step + draw))
            : what == "slow stage"
                ? slow_stage(one.costs, one.plan, 1 + spread)
                : slow_device(one.costs, one.plan, assignments[i], 0, 1 + spread);
        const SimulatedStep replayed =
            simulate_step(assignments[i], one.plan, costs, {.prove_limits = false});
        times[policies[i]] = 1e-9 * static_cast<double>(replayed.timeline.makespan.count());
      }
      rows.push_back({{"wrong", what}, {"by", spread}, {"step", step}, {"times", times}});
    };
    for (const double spread : {0.0, 0.05, 0.1, 0.2, 0.3}) {
      for (int draw = 0; draw < (spread == 0 ? 1 : draws); ++draw) {
        replay("costs", spread, draw);
      }
    }
    for (const char* slow : {"slow stage", "slow device"}) {
      replay(slow, 0.1, 0);
      replay(slow, 0.3, 0);
    }
  }
  return {
      {"kind", "wrong-costs"}, {"data", setting.data}, {"model", setting.model}, {"rows", rows}};
}

// One number of devices and of samples.
Json run_scale(const PaperStudy& paper, const Setting& setting, int replicas, int samples) {
  const Study study = open(paper, setting, samples);
  CasesRequest request;
  request.study = &study;
  request.plan = best_of(split_for(study, replicas));
  request.policies = {"disttrain", "lpt-2d", "entrain-paper", "entrain"};
  request.schedules = {"1f1b", "entrain"};
  request.steps = 3;
  request.memory = parse_memory_rule("free");
  request.threads = paper.threads;
  Json rows = Json::array();
  add_rows(request, run_cases(request), "ours", "free", rows);
  return {{"kind", "scale"},
          {"data", setting.data},
          {"model", setting.model},
          {"devices", kLanes * kTensorParallel * replicas},
          {"samples", samples},
          {"rows", rows}};
}

struct Matrix {
  std::vector<Setting> settings;
  std::vector<Setting> paper;               // where bubbles and wrong costs are looked at
  std::vector<std::pair<int, int>> scales;  // replicas, samples
};

// Full: stand-ins for the paper's data sets (captions of photographs, charts), and made-up ones,
// with both models; then other kinds of data, a frozen encoder and adapters.
Matrix matrix_of(const PaperStudy& study) {
  Matrix matrix;
  Names paper = made_up_names();
  if (!study.manifests.empty() && !study.quick) {
    paper.insert(paper.begin(), {"coco_val2017_captions", "opencqa_charts"});
  }
  for (const std::string& data : paper) {
    matrix.paper.push_back({data, "1b", "", false});
    matrix.settings.push_back({data, "1b", "", false});
    if (!study.quick) {
      matrix.settings.push_back({data, "3b", "", false});
    }
  }
  matrix.scales = {{1, 128}, {kReplicas, 64}};
  if (study.quick) {
    return matrix;
  }
  for (const std::string& data : paper) {
    matrix.settings.push_back({data, "1b", "frozen", false});
  }
  matrix.settings.push_back({paper.front(), "1b", "lora", false});
  if (!study.manifests.empty()) {
    for (const char* data : {"openstax_chem_sections", "vlm_small", "condensed_movies_video"}) {
      matrix.settings.push_back({data, "1b", "", false});
    }
    matrix.settings.push_back({"librispeech_multiclip", "1b", "", true});
  }
  matrix.scales = {{1, 128},
                   {kReplicas, 64},
                   {kReplicas, 512},
                   {kReplicas, 2048},
                   {kReplicas, 8192},
                   {32, 4096},
                   {256, 8192}};
  return matrix;
}

}  // namespace

std::vector<PaperCell> paper_cells(const PaperStudy& study) {
  const Matrix matrix = matrix_of(study);
  // Before a folder is made for a study of them.
  read_cluster(study.cluster);
  const auto need = [](const char* what, const fs::path& folder, const std::set<fs::path>& files) {
    std::vector<std::string> missing;
    for (const fs::path& file : files) {
      if (!fs::is_regular_file(folder / file)) {
        missing.push_back(fmt::format("'{}'", file.string()));
      }
    }
    if (!missing.empty()) {
      throw InvalidInput(fmt::format("no {}{} {} in '{}'",
                                     what,
                                     missing.size() == 1 ? "" : "s",
                                     join(missing),
                                     folder.string()));
    }
  };
  std::set<fs::path> models;
  std::set<fs::path> manifests;
  for (const Setting& setting : matrix.settings) {
    models.insert(model_file(study, setting).filename());
    if (!is_made_up(setting.data)) {
      manifests.insert(setting.data + ".csv");
    }
  }
  need("model", study.models, models);
  need("manifest", study.manifests, manifests);
  std::vector<PaperCell> cells;
  for (const Setting& setting : matrix.settings) {
    cells.push_back({setting.name(), study.quick ? 0.8 : 5.0, [study, setting] {
                       return run_setting(study, setting);
                     }});
  }
  for (const Setting& setting : matrix.paper) {
    cells.push_back({setting.name() + ".bubbles", study.quick ? 0.1 : 0.5, [study, setting] {
                       return run_bubbles(study, setting);
                     }});
    cells.push_back({setting.name() + ".wrong-costs", study.quick ? 0.1 : 0.5, [study, setting] {
                       return run_wrong_costs(study, setting);
                     }});
  }
  const Setting& first = matrix.paper.back();
  for (const auto& [replicas, samples] : matrix.scales) {
    cells.push_back({fmt::format("{}.scale-{}x{}", first.name(), replicas, samples),
                     0.05 + 1e-4 * samples,
                     [study, first, replicas = replicas, samples = samples] {
                       return run_scale(study, first, replicas, samples);
                     }});
  }
  return cells;
}

}  // namespace entrain
