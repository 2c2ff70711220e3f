#include "entrain/engine/train/run_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"

namespace entrain::engine {
namespace {

void require(bool holds, const ObjectReader& reader, const std::string& key, const char* allowed) {
  if (!holds) {
    reader.fail(key, concat("out of range; allowed: ", allowed));
  }
}

DataConfig read_data(ObjectReader reader) {
  DataConfig data;
  data.train = reader.required<std::string>("train");
  data.validation = reader.optional<std::string>("validation", "");
  data.global_batch = reader.required<int>("global_batch");
  require(data.global_batch >= 1, reader, "global_batch", ">= 1");
  data.read_ahead_mib = reader.optional<std::int64_t>("read_ahead_mib", data.read_ahead_mib);
  require(data.read_ahead_mib >= 1, reader, "read_ahead_mib", ">= 1");
  reader.finish();
  return data;
}

PlanConfig read_plan_config(ObjectReader reader) {
  PlanConfig plan;
  plan.file = reader.optional<std::string>("file", "");
  plan.replicas = reader.optional("replicas", plan.replicas);
  require(plan.replicas >= 1, reader, "replicas", ">= 1");
  plan.num_slots = reader.optional("num_slots", plan.num_slots);
  require(plan.num_slots >= 1, reader, "num_slots", ">= 1");
  if (const Json* stages = reader.find("stages")) {
    for (const auto& [name, value] : stages->items()) {
      const std::string where = reader.where("stages." + name);
      const int count = value_as<int>(value, where);
      if (count < 1) {
        throw InvalidInput(concat(where, ": ", count, " stages; allowed: >= 1"));
      }
      plan.stages[name] = count;
    }
  }
  plan.single_lane = reader.optional("single_lane", plan.single_lane);
  plan.policy = reader.optional<std::string>("policy", plan.policy);
  plan.schedule = reader.optional<std::string>("schedule", plan.schedule);
  plan.profile = reader.optional<std::string>("profile", "");
  plan.index = reader.optional<std::string>("index", "");
  plan.max_deferral = reader.optional("max_deferral", plan.max_deferral);
  require(plan.max_deferral >= -1, reader, "max_deferral", ">= -1 (-1: any distance)");
  plan.chunks = reader.optional("chunks", plan.chunks);
  plan.evaluations = reader.optional("evaluations", plan.evaluations);
  require(plan.evaluations >= 0, reader, "evaluations", ">= 0");
  for (const auto& [value, where] : reader.array("without")) {
    plan.without.push_back(value_as<std::string>(*value, where));
  }
  plan.bytes_per_lane_mib =
      reader.optional<std::int64_t>("bytes_per_lane_mib", plan.bytes_per_lane_mib);
  require(plan.bytes_per_lane_mib >= 0, reader, "bytes_per_lane_mib", ">= 0 (0: no limit)");
  reader.finish();
  return plan;
}

OptimizerConfig read_optimizer(ObjectReader reader) {
  OptimizerConfig config;
  config.learning_rate = reader.optional("learning_rate", config.learning_rate);
  require(config.learning_rate > 0, reader, "learning_rate", "> 0");
  config.final_fraction = reader.optional("final_fraction", config.final_fraction);
  require(
      config.final_fraction >= 0 && config.final_fraction <= 1, reader, "final_fraction", "0 to 1");
  config.warmup_steps = reader.optional("warmup_steps", config.warmup_steps);
  require(config.warmup_steps >= 0, reader, "warmup_steps", ">= 0");
  config.weight_decay = reader.optional("weight_decay", config.weight_decay);
  require(config.weight_decay >= 0, reader, "weight_decay", ">= 0");
  config.beta1 = reader.optional("beta1", config.beta1);
  require(config.beta1 >= 0 && config.beta1 < 1, reader, "beta1", "0 <= beta1 < 1");
  config.beta2 = reader.optional("beta2", config.beta2);
  require(config.beta2 >= 0 && config.beta2 < 1, reader, "beta2", "0 <= beta2 < 1");
  config.epsilon = reader.optional("epsilon", config.epsilon);
  require(config.epsilon > 0, reader, "epsilon", "> 0");
  config.clip_norm = reader.optional("clip_norm", config.clip_norm);
  require(config.clip_norm >= 0, reader, "clip_norm", ">= 0 (0: no clipping)");
  reader.finish();
  return config;
}

ValidationConfig read_validation(ObjectReader reader) {
  ValidationConfig config;
  config.every = reader.optional("every", config.every);
  require(config.every >= 0, reader, "every", ">= 0 (0: only at the end)");
  config.samples = reader.optional("samples", config.samples);
  require(config.samples >= 1, reader, "samples", ">= 1");
  reader.finish();
  return config;
}

CheckpointConfig read_checkpoint(ObjectReader reader) {
  CheckpointConfig config;
  config.every_steps = reader.optional<std::int64_t>("every_steps", config.every_steps);
  require(config.every_steps >= 0, reader, "every_steps", ">= 0 (0: only when stopped)");
  config.keep = reader.optional("keep", config.keep);
  require(config.keep >= 1, reader, "keep", ">= 1");
  config.folder = reader.optional<std::string>("folder", "");
  config.resume = reader.optional<std::string>("resume", config.resume);
  require(!config.resume.empty(), reader, "resume", "\"auto\", \"never\" or a path");
  reader.finish();
  return config;
}

Precision precision_of(const std::string& name, const ObjectReader& reader) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    if (name == name_of(precision)) {
      return precision;
    }
  }
  reader.fail("precision", concat("'", name, "' given; allowed: \"fp32\", \"bf16\""));
}

ExecutionConfig read_execution(ObjectReader reader) {
  ExecutionConfig config;
  config.precision = precision_of(reader.optional<std::string>("precision", "fp32"), reader);
  config.paced = reader.optional("paced", config.paced);
  config.measure_memory = reader.optional("measure_memory", config.measure_memory);
  config.deadline_seconds = reader.optional("deadline_seconds", config.deadline_seconds);
  require(config.deadline_seconds > 0, reader, "deadline_seconds", "> 0");
  config.trace_step = reader.optional("trace_step", config.trace_step);
  require(config.trace_step >= -1, reader, "trace_step", ">= -1 (-1: none)");
  for (const auto& [value, where] : reader.array("fault_drill")) {
    config.fault_drill.push_back(value_as<int>(*value, where));
  }
  require(config.fault_drill.empty() || config.fault_drill.size() == 3,
          reader,
          "fault_drill",
          "[replica, lane, step], or [] for none");
  reader.finish();
  return config;
}

}  // namespace

std::string_view name_of(Precision precision) {
  return precision == Precision::kFp32 ? "fp32" : "bf16";
}

std::string_view dtype_name_of(Precision precision) {
  return precision == Precision::kFp32 ? "float32" : "bfloat16";
}

RunConfig read_run_config(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides) {
  Json document = path.extension() == ".json" ? read_json_file(path) : read_toml_file(path);
  for (const std::string& assignment : overrides) {
    set_by_path(document, assignment);
  }
  return run_config_from_json(document, path.string());
}

RunConfig run_config_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  RunConfig config;
  config.output = reader.required<std::string>("output");
  config.steps = reader.required<std::int64_t>("steps");
  require(config.steps >= 1, reader, "steps", ">= 1");
  config.seed = reader.optional<std::uint64_t>("seed", 0);
  config.model_file = reader.required<std::string>("model");
  for (const auto& [value, value_where] : reader.array("freeze")) {
    config.freeze.push_back(value_as<std::string>(*value, value_where));
  }
  config.data = read_data(reader.object("data"));
  const Json empty = Json::object();
  const auto table = [&](const char* key) {
    const Json* value = reader.find(key);
    return ObjectReader(value == nullptr ? empty : *value, reader.where(key));
  };
  config.plan = read_plan_config(table("plan"));
  config.optimizer = read_optimizer(table("optimizer"));
  config.validation = read_validation(table("validation"));
  config.checkpoint = read_checkpoint(table("checkpoint"));
  config.execution = read_execution(table("execution"));
  reader.finish();
  return config;
}

Json to_json(const RunConfig& config) {
  Json stages = Json::object();
  for (const auto& [name, count] : config.plan.stages) {
    stages[name] = count;
  }
  return Json{
      {"output", config.output},
      {"steps", config.steps},
      {"seed", config.seed},
      {"model", config.model_file},
      {"freeze", config.freeze},
      {"data",
       {{"train", config.data.train},
        {"validation", config.data.validation},
        {"global_batch", config.data.global_batch},
        {"read_ahead_mib", config.data.read_ahead_mib}}},
      {"plan",
       {{"file", config.plan.file},
        {"replicas", config.plan.replicas},
        {"num_slots", config.plan.num_slots},
        {"stages", stages},
        {"single_lane", config.plan.single_lane},
        {"policy", config.plan.policy},
        {"schedule", config.plan.schedule},
        {"profile", config.plan.profile},
        {"index", config.plan.index},
        {"max_deferral", config.plan.max_deferral},
        {"chunks", config.plan.chunks},
        {"evaluations", config.plan.evaluations},
        {"without", config.plan.without},
        {"bytes_per_lane_mib", config.plan.bytes_per_lane_mib}}},
      {"optimizer",
       {{"learning_rate", config.optimizer.learning_rate},
        {"final_fraction", config.optimizer.final_fraction},
        {"warmup_steps", config.optimizer.warmup_steps},
        {"weight_decay", config.optimizer.weight_decay},
        {"beta1", config.optimizer.beta1},
        {"beta2", config.optimizer.beta2},
        {"epsilon", config.optimizer.epsilon},
        {"clip_norm", config.optimizer.clip_norm}}},
      {"validation", {{"every", config.validation.every}, {"samples", config.validation.samples}}},
      {"checkpoint",
       {{"every_steps", config.checkpoint.every_steps},
        {"keep", config.checkpoint.keep},
        {"folder", config.checkpoint.folder},
        {"resume", config.checkpoint.resume}}},
      {"execution",
       {{"precision", name_of(config.execution.precision)},
        {"paced", config.execution.paced},
        {"measure_memory", config.execution.measure_memory},
        {"deadline_seconds", config.execution.deadline_seconds},
        {"trace_step", config.execution.trace_step},
        {"fault_drill", config.execution.fault_drill}}},
  };
}

std::filesystem::path checkpoint_folder(const RunConfig& config) {
  return config.checkpoint.folder.empty() ? std::filesystem::path(config.output) / kCheckpointsName
                                          : std::filesystem::path(config.checkpoint.folder);
}

ModelSpec run_model(const RunConfig& config) {
  ModelSpec model = read_model(config.model_file);
  for (const std::string& name : config.freeze) {
    if (name == "llm") {
      model.llm.frozen = true;
      continue;
    }
    if (name == "projector") {
      for (EncoderSpec& encoder : model.encoders) {
        encoder.projector_frozen = true;
      }
      continue;
    }
    const auto encoder = std::find_if(model.encoders.begin(),
                                      model.encoders.end(),
                                      [&](const EncoderSpec& e) { return e.name == name; });
    if (encoder == model.encoders.end()) {
      std::vector<std::string> allowed = {"llm", "projector"};
      for (const EncoderSpec& known : model.encoders) {
        allowed.push_back(known.name);
      }
      throw InvalidInput(
          concat("freeze: the model has no module '", name, "'", suggestion(name, allowed)));
    }
    encoder->frozen = true;
  }
  bool trainable = !model.llm.frozen;
  for (const EncoderSpec& encoder : model.encoders) {
    trainable = trainable || !encoder.frozen || !encoder.projector_frozen;
  }
  if (!trainable) {
    throw InvalidInput("freeze: every module is frozen, so there is nothing to train");
  }
  return model;
}

double learning_rate_at(const OptimizerConfig& config, std::int64_t step, std::int64_t steps) {
  if (step < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(step + 1) / config.warmup_steps;
  }
  const auto left = static_cast<double>(std::max<std::int64_t>(1, steps - config.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup_steps) / left);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.learning_rate * (config.final_fraction + (1.0 - config.final_fraction) * cosine);
}

}  // namespace entrain::engine
