#include "entrain/engine/train/prepare_run.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/profile_range.h"
#include "entrain/core/cost/runnable.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/train/feed_run.h"
#include "entrain/engine/train/prepared_step.h"
#include "entrain/engine/train/recompute_policy.h"
#include "entrain/engine/train/run_checks.h"

namespace entrain::engine {
namespace {

// What `read` returns; what is wrong names the key of the run file that asked for it.
template <class Read>
auto of_key(const char* key, Read read) {
  try {
    return read();
  } catch (const InvalidInput& error) {
    throw InvalidInput(concat(key, ": ", error.what()));
  }
}

// [module] its value in `given`, 1 if absent.
std::vector<int> per_module(const std::map<std::string, int>& given,
                            const char* key,
                            const ModelSpec& model) {
  std::vector<std::string> names;
  std::vector<int> counts;
  for (int module = 0; module < model.num_modules(); ++module) {
    names.push_back(module_name(model, module));
    const auto entry = given.find(names.back());
    counts.push_back(entry == given.end() ? 1 : entry->second);
  }
  for (const auto& [name, count] : given) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw InvalidInput(
          concat(key, ": the model has no module '", name, "'", suggestion(name, names)));
    }
  }
  return counts;
}

Plan make_plan(const RunConfig& config, const ModelSpec& model) {
  Plan plan;
  if (!config.plan.file.empty()) {
    plan = of_key("plan.file", [&] { return read_plan(config.plan.file, model); });
  } else {
    plan = even_plan(model,
                     per_module(config.plan.stages, "plan.stages", model),
                     config.plan.replicas,
                     config.plan.num_slots);
    const std::vector<int> degrees =
        per_module(config.plan.tensor_parallel, "plan.tensor_parallel", model);
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      plan.modules[module].tensor_parallel = degrees[module];
    }
    if (config.plan.single_lane) {
      std::vector<StageRef> all;
      for (const auto& lane : plan.lanes) {
        all.insert(all.end(), lane.begin(), lane.end());
      }
      plan.lanes = {all};
    }
    plan.limits.max_deferral = config.plan.max_deferral;
    plan.limits.chunks = config.plan.chunks;
    plan.limits.evaluations = config.plan.evaluations;
    plan.limits.bytes_per_lane = config.plan.bytes_per_lane_mib << 20U;
  }
  plan.policy = config.plan.policy;
  plan.schedule = config.plan.schedule;
  plan.shard_optimizer = config.plan.shard_optimizer.value_or(plan.shard_optimizer);
  validate(plan, model, config.plan.file.empty() ? "plan" : config.plan.file);
  check_runnable(plan, model, config.plan.file.empty() ? "plan" : config.plan.file);
  const auto check_name = [](const char* what, const std::string& name, auto names) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw InvalidInput(concat("plan.",
                                what,
                                ": unknown ",
                                what,
                                " '",
                                name,
                                "'",
                                suggestion(name, names),
                                " (allowed: ",
                                join(names),
                                ")"));
    }
  };
  check_name("policy", plan.policy, policy_names());
  check_name("schedule", plan.schedule, schedule_names());
  const std::string objection = schedule_objection(plan.schedule, plan);
  if (!objection.empty()) {
    throw InvalidInput(
        concat("plan.schedule: '", plan.schedule, "' cannot run this plan: ", objection));
  }
  return plan;
}

// A drill names a rank of the plan and a step of the run.
void check_drill(const RunConfig& config, const Plan& plan) {
  const std::vector<int>& drill = config.execution.fault_drill;
  if (drill.empty()) {
    return;
  }
  const auto within = [](int value, std::int64_t end) { return value >= 0 && value < end; };
  if (!within(drill[0], plan.replicas) || !within(drill[1], plan.num_lanes()) ||
      !within(drill[2], config.steps)) {
    throw InvalidInput(concat("execution.fault_drill: replica ",
                              drill[0],
                              ", lane ",
                              drill[1],
                              ", step ",
                              drill[2],
                              "; the run has ",
                              counted(plan.replicas, "replica"),
                              ", ",
                              counted(plan.num_lanes(), "lane"),
                              " and ",
                              counted(config.steps, "step"),
                              ", each counted from 0"));
  }
}

std::vector<std::string> ids_of(const Index& index) {
  std::vector<std::string> ids;
  for (const SampleSizes& sample : index.samples) {
    ids.push_back(sample.id);
  }
  return ids;
}

// The run's length in steps where its config gives epochs, and what an epoch holds.
void set_length(const RunConfig& config, RunSetup& setup) {
  const GlobalBatchSampler sampler = batches_of(setup);
  if (setup.mixture.has_value()) {
    const std::optional<std::int64_t> steps = setup.mixture->num_steps();
    if (config.epochs > 0) {
      throw InvalidInput("epochs: a mixture has none as a whole; give `steps`");
    }
    if (steps.has_value() && *steps < config.steps) {
      throw InvalidInput(
          concat("steps = ",
                 config.steps,
                 "; data.mixture ends after ",
                 *steps,
                 " steps, when its parts are used up or weigh 0: let a part go on without "
                 "`epochs`, or train fewer steps"));
    }
    return;
  }
  if (config.epochs > 0) {
    const std::int64_t per_epoch = sampler.steps_per_epoch();
    if (config.epochs > kMostSteps / per_epoch) {
      throw InvalidInput(concat("epochs = ",
                                config.epochs,
                                " of ",
                                counted(per_epoch, "step"),
                                " each; at most ",
                                kMostSteps,
                                " steps are allowed"));
    }
    setup.config.steps = config.epochs * per_epoch;
    check_whole_updates(
        setup.config,
        concat("epochs = ", config.epochs, " of ", counted(per_epoch, "step"), " each"));
  }
  if (sampler.last_batch() < setup.plan.replicas) {
    throw InvalidInput(concat("data.last_batch = \"keep\": the last batch of an epoch has ",
                              sampler.last_batch(),
                              " of ",
                              counted(std::ssize(setup.train.index.samples), "sample"),
                              ", the plan ",
                              counted(setup.plan.replicas, "replica"),
                              ", each of which needs one; allowed are \"drop\", another "
                              "data.global_batch or fewer replicas"));
  }
}

CheckpointRun identity_of(const RunSetup& setup) {
  CheckpointRun run;
  run.seed = setup.config.seed;
  run.global_batch = setup.config.data.global_batch;
  run.config = to_json(setup.config);
  run.plan = to_json(setup.plan);
  run.model = to_json(setup.model);
  run.index_digest = digest(setup.train.index);
  run.model_digest = digest(setup.model);
  run.plan_digest = digest(setup.plan);
  run.config_digest = digest_of(run.config.dump());
  return run;
}

// The file's, or an analytic profile for the run's precision and degrees.
Profile run_profile(const RunConfig& config, const ModelSpec& model, const Plan& plan) {
  const std::string dtype(dtype_name_of(config.execution.precision));
  if (config.plan.profile.starts_with("analytic:")) {
    throw InvalidInput(concat("plan.profile = '",
                              config.plan.profile,
                              "': a run takes a file of `entrain profile`, or none; analytic "
                              "profiles are for studies"));
  }
  if (!config.plan.profile.empty()) {
    return of_key("plan.profile", [&] { return read_profile(config.plan.profile); });
  }
  DeviceModel device = device_model(kAssumedDevice);
  device.dtype = dtype;
  AnalyticOptions options;
  for (const ModulePlan& module : plan.modules) {
    options.tensor_parallel.push_back(module.tensor_parallel);
  }
  return analytic_profile(model, device, options);
}

// A run that decodes for itself and stops at a sample that it cannot read checks before the first
// step that all files exist.
DataSet load_data(const RunConfig& config, const std::string& path, const ModelSpec& model) {
  DataSet data = load_data_set(path, model, config.data.ignore_modality);
  if (!config.execution.paced && config.data.feed.empty() &&
      config.faults.on_bad_sample != kSkipStep) {
    check_files(data.index);
  }
  std::string of_bytes = bytes_warning(data.index, config.model_file);
  if (!of_bytes.empty()) {
    data.notes.push_back(std::move(of_bytes));
  }
  return data;
}

// Warns of ignored media and of limits of the validation loss.
void add_data_warnings(RunSetup& setup) {
  for (const DataSet* data : {&setup.train, &setup.validation}) {
    setup.warnings.insert(setup.warnings.end(), data->notes.begin(), data->notes.end());
  }
  const int judged = num_validated(setup);
  if (judged > 0 && judged < setup.plan.replicas) {
    setup.warnings.push_back(concat("no validation: ",
                                    counted(judged, "sample"),
                                    " for the plan's ",
                                    counted(setup.plan.replicas, "replica"),
                                    ", each of which needs one"));
  }
  const std::string overlap = overlap_warning(setup.train.index, setup.validation.index);
  if (!overlap.empty()) {
    setup.warnings.push_back(overlap);
  }
}

}  // namespace

RunSetup prepare_run(const RunConfig& config) {
  RunSetup setup;
  setup.config = config;
  setup.model = of_key("model", [&] { return run_model(config); });
  if (setup.model.llm.vocab_size < kVocabSize) {
    throw InvalidInput(concat("model: llm.vocab_size ",
                              setup.model.llm.vocab_size,
                              " is too small; the byte tokenizer needs ",
                              kVocabSize));
  }
  FeedOptions unused;  // only checked here
  add_feeds(config.data, unused);
  setup.initial = read_initial_weights(config, setup.model);
  setup.plan = make_plan(config, setup.model);
  setup.profile = run_profile(config, setup.model, setup.plan);
  validate(setup.profile,
           setup.model,
           config.plan.profile.empty() ? "analytic profile" : config.plan.profile);
  setup.train =
      of_key("data.train", [&] { return load_data(config, config.data.train, setup.model); });
  if (config.data.validation_fraction > 0) {
    setup.validation = split_validation(config.data.validation_fraction, config.seed, setup.train);
  }
  const auto num_samples = static_cast<int>(setup.train.index.samples.size());
  const int least = std::max(config.data.global_batch, setup.plan.replicas);
  if (num_samples < least || config.data.global_batch < setup.plan.replicas) {
    throw InvalidInput(concat("data: '",
                              config.data.train,
                              "' has ",
                              counted(num_samples, "sample"),
                              ", data.global_batch is ",
                              config.data.global_batch,
                              " and the plan has ",
                              counted(setup.plan.replicas, "replica"),
                              "; needed: samples >= global_batch >= replicas"));
  }
  if (!config.data.mixture.empty()) {
    setup.mixture.emplace(
        config.data.mixture, ids_of(setup.train.index), config.data.global_batch, config.seed);
  }
  if (config.data.hold > 1) {
    setup.hold_weights = hold_weights(setup.model, setup.train.work);
  }
  set_length(config, setup);
  check_drill(setup.config, setup.plan);
  if (!config.data.validation.empty()) {
    setup.validation = of_key(
        "data.validation", [&] { return load_data(config, config.data.validation, setup.model); });
    check_same_tokenizer(setup.train.index, setup.validation.index);
  }
  if (!config.plan.index.empty()) {
    const std::vector<SampleSizes> planned =
        of_key("plan.index", [&] { return read_index(config.plan.index).samples; });
    check_media(setup.model,
                planned,
                config.data.ignore_modality,
                concat("index '", config.plan.index, "'"),
                kIgnoreKey);
    setup.planned = batch_work(setup.model, planned);
  }
  apply_recompute(setup);
  setup.warnings = range_warnings(setup.model, setup.plan, setup.profile, work_of_step(setup, 0));
  check_profile(config, setup.profile, setup.warnings);
  add_data_warnings(setup);
  add_run_warnings(setup);
  setup.identity = identity_of(setup);
  setup.resume = find_resume(setup.config, setup.identity, setup.warnings);
  return setup;
}

}  // namespace entrain::engine
