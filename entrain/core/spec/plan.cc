#include "entrain/core/spec/plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/ranges.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/cost_origin.h"
#include "entrain/core/spec/limits.h"

namespace entrain {
namespace {

constexpr int kPlanVersion = 1;

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw InvalidInput(fmt::format("{}: {}", where, message));
}

constexpr WholeRange kCopies{1, kMostReplicas};
constexpr WholeRange kDegrees{1, 1024};  // of tensor or context parallelism
constexpr WholeRange kBytes{0, 1'000'000'000'000'000};

void check_range(const std::string& where,
                 const char* key,
                 std::int64_t value,
                 const WholeRange& range) {
  if (const std::string error = range_error(value, range); !error.empty()) {
    fail(key_path(where, key), error);
  }
}

ModulePlan read_module(ObjectReader reader, const std::string& name) {
  ModulePlan plan;
  plan.name = name;
  plan.tensor_parallel = reader.optional("tensor_parallel", 1);
  plan.context_parallel = reader.optional("context_parallel", 1);
  reader.at("stages");
  for (const auto& [value, where] : reader.array("stages")) {
    const auto bounds = elements_of(*value, where);
    if (bounds.size() != 2) {
      fail(where, fmt::format("{} is not a range; write [first, one past last]", value->dump()));
    }
    plan.stages.push_back({value_as<int>(*bounds[0].first, bounds[0].second),
                           value_as<int>(*bounds[1].first, bounds[1].second)});
  }
  plan.recompute = reader.list<int>("recompute");
  reader.finish();
  return plan;
}

std::vector<std::vector<StageRef>> read_lanes(ObjectReader& reader, const ModelSpec& model) {
  const std::vector<std::string> names = module_names(model);
  std::vector<std::vector<StageRef>> lanes;
  for (const auto& [value, where] : reader.array("lanes")) {
    std::vector<StageRef> lane;
    for (const auto& [entry, entry_where] : elements_of(*value, where)) {
      const auto pair = elements_of(*entry, entry_where);
      if (pair.size() != 2) {
        fail(entry_where, fmt::format("{} is not a stage; write [module, index]", entry->dump()));
      }
      const auto name = value_as<std::string>(*pair[0].first, pair[0].second);
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) {
        fail(pair[0].second, fmt::format("no module '{}'{}", name, suggestion(name, names)));
      }
      lane.push_back(
          {static_cast<int>(found - names.begin()), value_as<int>(*pair[1].first, pair[1].second)});
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

PlanLimits read_limits(ObjectReader reader) {
  PlanLimits limits;
  limits.bytes_per_lane = reader.optional("bytes_per_lane", limits.bytes_per_lane);
  limits.lane_bytes = reader.list<std::int64_t>("lane_bytes");
  limits.max_deferral = reader.optional("max_deferral", limits.max_deferral);
  limits.chunks = reader.optional("chunks", limits.chunks);
  limits.evaluations = reader.optional("evaluations", limits.evaluations);
  reader.finish();
  return limits;
}

PlanCertificate read_certificate(ObjectReader reader) {
  PlanCertificate certificate;
  certificate.lower_bound_s = reader.optional("lower_bound_s", 0.0);
  certificate.simulated_s = reader.optional("simulated_s", 0.0);
  certificate.ratio = reader.optional("ratio", 0.0);
  certificate.dynamic_regret = reader.optional("dynamic_regret", 0.0);
  certificate.b_min = reader.optional("b_min", 0);
  certificate.further_batches = reader.optional("further_batches", 0);
  reader.finish();
  return certificate;
}

void validate_module(const ModulePlan& plan, int layers, const std::string& where) {
  check_range(where, "tensor_parallel", plan.tensor_parallel, kDegrees);
  check_range(where, "context_parallel", plan.context_parallel, kDegrees);
  const std::string stages = key_path(where, "stages");
  if (plan.stages.empty()) {
    fail(stages, "the list is empty; every module needs at least one stage");
  }
  int next = 0;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const auto [begin, end] = plan.stages[i];
    const std::string stage = fmt::format("{}[{}]", stages, i);
    if (end <= begin) {
      fail(stage, fmt::format("[{}, {}] holds no layer", begin, end));
    }
    if (begin > next) {
      fail(stage,
           fmt::format("begins at layer {}; layers {} to {} are covered by no stage",
                       begin,
                       next,
                       begin - 1));
    }
    if (begin < next) {
      fail(stage,
           fmt::format(
               "begins at layer {}, which an earlier stage covers; {} is needed", begin, next));
    }
    if (end > layers) {
      fail(stage,
           fmt::format("ends at layer {}; the module has {}", end, counted(layers, "layer")));
    }
    next = end;
  }
  if (next < layers) {
    fail(stages, fmt::format("layers {} to {} are covered by no stage", next, layers - 1));
  }
}

void validate_recompute(const ModulePlan& plan, const std::string& where) {
  const std::string recompute = key_path(where, "recompute");
  if (!plan.recompute.empty() && plan.recompute.size() != plan.stages.size()) {
    fail(recompute,
         fmt::format("{} numbers of layers for {} stages; one a stage is needed",
                     plan.recompute.size(),
                     plan.stages.size()));
  }
  for (std::size_t i = 0; i < plan.recompute.size(); ++i) {
    const int layers = plan.stages[i].end - plan.stages[i].begin;
    if (plan.recompute[i] < 0 || plan.recompute[i] > layers) {
      fail(fmt::format("{}[{}]", recompute, i),
           fmt::format("{} layers given; the stage has {}, so that 0 to {} are possible",
                       plan.recompute[i],
                       layers,
                       layers));
    }
  }
}

void validate_lane(const Plan& plan,
                   const std::vector<StageRef>& lane,
                   const std::string& where,
                   std::vector<std::vector<int>>& hosts,
                   int index) {
  if (lane.empty()) {
    fail(where, "a lane without stages");
  }
  int ranks = 0;
  std::vector<int> last(plan.modules.size(), -1);
  for (const StageRef& ref : lane) {
    if (ref.module < 0 || at(ref.module) >= plan.modules.size()) {
      fail(where, fmt::format("module {} does not exist", ref.module));
    }
    const ModulePlan& module = plan.modules[at(ref.module)];
    if (ref.stage < 0 || at(ref.stage) >= module.stages.size()) {
      fail(where,
           fmt::format(
               "'{}' has no stage {}; it has {}", module.name, ref.stage, module.stages.size()));
    }
    int& host = hosts[at(ref.module)][at(ref.stage)];
    if (host >= 0) {
      fail(where,
           fmt::format("stage {} of '{}' is on lane {} and on lane {}",
                       ref.stage,
                       module.name,
                       host,
                       index));
    }
    host = index;
    if (ref.stage < last[at(ref.module)]) {
      fail(where,
           fmt::format("stage {} of '{}' is after stage {}; rising order is needed",
                       ref.stage,
                       module.name,
                       last[at(ref.module)]));
    }
    last[at(ref.module)] = ref.stage;
    const int needed = module.tensor_parallel * module.context_parallel;
    if (ranks != 0 && needed != ranks) {
      fail(where,
           fmt::format("'{}' runs on {} ranks, an earlier stage of this lane on {}; tensor "
                       "times context parallelism has to be equal within a lane",
                       module.name,
                       needed,
                       ranks));
    }
    ranks = needed;
  }
}

}  // namespace

int default_evaluations(int replicas) {
  constexpr int kFewReplicas = 4;
  constexpr double kMost = 1e6;
  return replicas <= kFewReplicas
             ? kUsualEvaluations
             : static_cast<int>(std::min(kMost, 1000 * std::sqrt(static_cast<double>(replicas))));
}

int Plan::lane_of(int module, int stage) const {
  const StageRef wanted{module, stage};
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (std::find(lanes[lane].begin(), lanes[lane].end(), wanted) != lanes[lane].end()) {
      return static_cast<int>(lane);
    }
  }
  return -1;
}

bool recomputes(const ModulePlan& module) {
  return std::any_of(
      module.recompute.begin(), module.recompute.end(), [](int layers) { return layers > 0; });
}

bool recomputes(const Plan& plan) {
  return std::any_of(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
    return recomputes(module);
  });
}

void recompute_all(Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    for (const LayerRange& layers : module.stages) {
      module.recompute.push_back(layers.end - layers.begin);
    }
  }
}

std::vector<std::vector<StageRef>> default_lanes(const std::vector<ModulePlan>& modules) {
  std::vector<std::vector<StageRef>> lanes;
  for (std::size_t module = 0; module < modules.size(); ++module) {
    for (std::size_t stage = 0; stage < modules[module].stages.size(); ++stage) {
      lanes.push_back({{static_cast<int>(module), static_cast<int>(stage)}});
    }
  }
  return lanes;
}

Plan even_plan(const ModelSpec& model,
               const std::vector<int>& stages,
               int replicas,
               int num_slots) {
  if (stages.size() != at(model.num_modules())) {
    throw InvalidInput(fmt::format("{} stage counts given for the {} modules {}",
                                   stages.size(),
                                   model.num_modules(),
                                   join(module_names(model))));
  }
  Plan plan;
  plan.replicas = replicas;
  plan.num_slots = num_slots;
  for (int module = 0; module < model.num_modules(); ++module) {
    const int layers = num_layers(model, module);
    const int count = stages[at(module)];
    if (count < 1 || count > layers) {
      throw InvalidInput(fmt::format("{} stages given for module '{}'; 1 to {} are possible",
                                     count,
                                     module_name(model, module),
                                     layers));
    }
    ModulePlan part;
    part.name = module_name(model, module);
    int begin = 0;
    for (int stage = 0; stage < count; ++stage) {
      const int end = begin + layers / count + (stage < layers % count ? 1 : 0);
      part.stages.push_back({begin, end});
      begin = end;
    }
    plan.modules.push_back(std::move(part));
  }
  plan.lanes = default_lanes(plan.modules);
  validate(plan, model, "plan");
  return plan;
}

Plan read_plan(const std::filesystem::path& path, const ModelSpec& model) {
  return plan_from_json(read_json_file(path), model, path.string());
}

Plan plan_from_json(const Json& document, const ModelSpec& model, const std::string& where) {
  ObjectReader reader(document, where);
  reader.check_version(kPlanVersion);
  if (document.contains("device") && !document.contains("replicas")) {
    throw InvalidInput(where + ": a profile; a plan is needed (entrain plan -o plan.json)");
  }
  Plan plan;
  plan.replicas = reader.required<int>("replicas");
  plan.num_slots = reader.required<int>("num_slots");
  ObjectReader modules = reader.object("modules");
  for (const std::string& name : module_names(model)) {
    plan.modules.push_back(read_module(modules.object(name), name));
  }
  modules.finish();
  plan.lanes = reader.has("lanes") ? read_lanes(reader, model) : default_lanes(plan.modules);
  plan.policy = reader.optional("policy", plan.policy);
  plan.schedule = reader.optional("schedule", plan.schedule);
  plan.limits = read_limits(reader.optional_object("limits"));
  plan.shard_optimizer = reader.optional("shard_optimizer", plan.shard_optimizer);
  plan.certificate = read_certificate(reader.optional_object("certificate"));
  if (const Json* costs = reader.find("costs")) {
    cost_origin_from_json(*costs, reader.where("costs"));  // for people, and see plan_origin()
  }
  reader.finish();
  validate(plan, model, where);
  return plan;
}

Json to_json(const Plan& plan) {
  Json modules = Json::object();
  for (const ModulePlan& module : plan.modules) {
    Json stages = Json::array();
    for (const LayerRange& range : module.stages) {
      stages.push_back({range.begin, range.end});
    }
    modules[module.name] = {{"tensor_parallel", module.tensor_parallel},
                            {"context_parallel", module.context_parallel},
                            {"stages", stages}};
    if (recomputes(module)) {
      modules[module.name]["recompute"] = module.recompute;
    }
  }
  Json lanes = Json::array();
  for (const std::vector<StageRef>& lane : plan.lanes) {
    Json refs = Json::array();
    for (const StageRef& ref : lane) {
      refs.push_back(Json::array({plan.modules[at(ref.module)].name, ref.stage}));
    }
    lanes.push_back(std::move(refs));
  }
  Json limits = {{"bytes_per_lane", plan.limits.bytes_per_lane},
                 {"max_deferral", plan.limits.max_deferral},
                 {"chunks", plan.limits.chunks},
                 {"evaluations", plan.limits.evaluations}};
  if (!plan.limits.lane_bytes.empty()) {
    limits["lane_bytes"] = plan.limits.lane_bytes;
  }
  Json document = {{"version", kPlanVersion},
                   {"replicas", plan.replicas},
                   {"num_slots", plan.num_slots},
                   {"modules", modules},
                   {"lanes", lanes},
                   {"policy", plan.policy},
                   {"schedule", plan.schedule},
                   {"limits", limits},
                   {"certificate",
                    {{"lower_bound_s", plan.certificate.lower_bound_s},
                     {"simulated_s", plan.certificate.simulated_s},
                     {"ratio", plan.certificate.ratio},
                     {"dynamic_regret", plan.certificate.dynamic_regret},
                     {"b_min", plan.certificate.b_min},
                     {"further_batches", plan.certificate.further_batches}}}};
  if (plan.shard_optimizer) {
    document["shard_optimizer"] = true;
  }
  return document;
}

void validate(const Plan& plan, const ModelSpec& model, const std::string& where) {
  check_range(where, "replicas", plan.replicas, kCopies);
  check_range(where, "num_slots", plan.num_slots, {1, kMostSlots});
  check_range(where, "limits.bytes_per_lane", plan.limits.bytes_per_lane, kBytes);
  for (const std::int64_t bytes : plan.limits.lane_bytes) {
    check_range(where, "limits.lane_bytes", bytes, kBytes);
  }
  check_range(where, "limits.max_deferral", plan.limits.max_deferral, {-1, kCopies.most});
  check_range(where, "limits.evaluations", plan.limits.evaluations, {0, 1'000'000});
  std::vector<std::string> given;
  for (const ModulePlan& module : plan.modules) {
    given.push_back(module.name);
  }
  const std::vector<std::string> names = module_names(model);
  if (given != names) {
    fail(key_path(where, "modules"),
         fmt::format("the plan holds {}; the model has {}",
                     given.empty() ? "no module" : join(given),
                     join(names)));
  }
  std::vector<std::vector<int>> hosts;  // [module][stage] lane, -1: none yet
  for (int module = 0; module < model.num_modules(); ++module) {
    const ModulePlan& part = plan.modules[at(module)];
    const std::string path = key_path(where, "modules." + part.name);
    validate_module(part, num_layers(model, module), path);
    validate_recompute(part, path);
    hosts.emplace_back(part.stages.size(), -1);
  }
  const std::string lanes = key_path(where, "lanes");
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    validate_lane(plan, plan.lanes[at(lane)], fmt::format("{}[{}]", lanes, lane), hosts, lane);
  }
  for (std::size_t module = 0; module < hosts.size(); ++module) {
    const auto missing = std::find(hosts[module].begin(), hosts[module].end(), -1);
    if (missing != hosts[module].end()) {
      fail(lanes,
           fmt::format(
               "stage {} of '{}' is on no lane", missing - hosts[module].begin(), names[module]));
    }
  }
  if (!plan.limits.lane_bytes.empty() && std::ssize(plan.limits.lane_bytes) != plan.num_lanes()) {
    fail(key_path(where, "limits.lane_bytes"),
         fmt::format("{} given; the plan has {}",
                     counted(std::ssize(plan.limits.lane_bytes), "limit"),
                     counted(plan.num_lanes(), "lane")));
  }
}

std::string digest(const Plan& plan) {
  Json document = to_json(plan);
  document.erase("certificate");
  return digest_of(document.dump());
}

}  // namespace entrain
