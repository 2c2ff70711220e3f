#include "entrain/engine/train/run_config.h"

#include <algorithm>
#include <array>
#include <span>

#include <nlohmann/json.hpp>

#include "entrain/core/base/ranges.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/hold.h"
#include "entrain/core/spec/limits.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/pipeline/fault_kinds.h"

namespace entrain::engine {
namespace {

void require(bool holds, const ObjectReader& reader, const std::string& key, const char* allowed) {
  if (!holds) {
    reader.fail(key, concat("out of range; allowed: ", allowed));
  }
}

constexpr std::int64_t kMostMebibytes = 1'000'000'000;

// `note` follows the allowed range.
void check_whole(const ObjectReader& reader,
                 const std::string& key,
                 std::int64_t value,
                 const WholeRange& range,
                 const char* note = "") {
  if (const std::string error = range_error(value, range); !error.empty()) {
    reader.fail(key, error + note);
  }
}

void check_number(const ObjectReader& reader,
                  const std::string& key,
                  double value,
                  const NumberRange& range,
                  const char* note = "") {
  if (const std::string error = range_error(value, range); !error.empty()) {
    reader.fail(key, error + note);
  }
}

template <class T>
std::optional<T> own_value(ObjectReader& reader, const char* key) {
  const Json* value = reader.find(key);
  return value == nullptr ? std::nullopt : std::optional(value_as<T>(*value, reader.where(key)));
}

void check_name(const ObjectReader& reader,
                const std::string& key,
                const std::string& given,
                std::span<const std::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), given) == allowed.end()) {
    const std::vector<std::string> names(allowed.begin(), allowed.end());
    reader.fail(key, concat("'", given, "' given; allowed: ", join(names)));
  }
}

constexpr std::array<std::string_view, 2> kLastBatchRules = {"drop", kKeepLastBatch};

DataConfig read_data(ObjectReader reader) {
  DataConfig data;
  data.train = reader.required<std::string>("train");
  data.validation = reader.optional<std::string>("validation", "");
  data.validation_fraction = reader.optional("validation_fraction", data.validation_fraction);
  check_number(
      reader, "validation_fraction", data.validation_fraction, {0, 1, false, true}, " (0: none)");
  require(data.validation.empty() || data.validation_fraction == 0,
          reader,
          "validation_fraction",
          "0 where data.validation names an index");
  data.global_batch = reader.required<int>("global_batch");
  check_whole(reader, "global_batch", data.global_batch, {1, 1'000'000});
  data.last_batch = reader.optional<std::string>("last_batch", data.last_batch);
  check_name(reader, "last_batch", data.last_batch, kLastBatchRules);
  data.hold = reader.optional<int>("hold", data.hold);
  check_whole(reader, "hold", data.hold, {0, kMostHeldSteps}, " (0 or 1: off)");
  data.hold = std::max(1, data.hold);
  if (const Json* mixture = reader.find("mixture"); mixture != nullptr && !mixture->empty()) {
    data.mixture = read_mixture(*mixture, reader.where("mixture"));
    require(data.last_batch == "drop", reader, "last_batch", "\"drop\" where there is a mixture");
  }
  for (const auto& [value, where] : reader.array("ignore_modality")) {
    data.ignore_modality.push_back(value_as<std::string>(*value, where));
    check_name(reader, "ignore_modality", data.ignore_modality.back(), kMediaNames);
  }
  data.read_ahead_mib = reader.optional<std::int64_t>("read_ahead_mib", data.read_ahead_mib);
  check_whole(reader, "read_ahead_mib", data.read_ahead_mib, {1, 1'000'000});
  data.decode_threads = reader.optional<int>("decode_threads", data.decode_threads);
  check_whole(reader, "decode_threads", data.decode_threads, {0, 256}, " (0: by the cores)");
  data.share_decoding = reader.optional<bool>("share_decoding", data.share_decoding);
  for (const auto& [value, where] : reader.array("feed")) {
    data.feed.push_back(value_as<std::string>(*value, where));
  }
  data.feed_key = reader.optional<std::string>("feed_key", data.feed_key);
  data.feed_deadline_s = reader.optional<double>("feed_deadline_s", data.feed_deadline_s);
  require(data.feed_deadline_s >= 0.1 && data.feed_deadline_s <= 3600,
          reader,
          "feed_deadline_s",
          "0.1 to 3600");
  reader.finish();
  return data;
}

// A number for every module that the table names.
std::map<std::string, int> read_counts(ObjectReader& reader, const char* table, int most) {
  std::map<std::string, int> counts;
  if (const Json* given = reader.find(table)) {
    for (const auto& [name, value] : given->items()) {
      const std::string where = reader.where(concat(table, ".", name));
      const int count = value_as<int>(value, where);
      if (const std::string error = range_error(std::int64_t{count}, WholeRange{1, most});
          !error.empty()) {
        throw InvalidInput(concat(where, ": ", error));
      }
      counts[name] = count;
    }
  }
  return counts;
}

PlanConfig read_plan_config(ObjectReader reader) {
  PlanConfig plan;
  plan.file = reader.optional<std::string>("file", "");
  plan.replicas = reader.optional("replicas", plan.replicas);
  check_whole(reader, "replicas", plan.replicas, {1, kMostReplicas});
  plan.num_slots = reader.optional("num_slots", plan.num_slots);
  check_whole(reader, "num_slots", plan.num_slots, {1, kMostSlots});
  plan.stages = read_counts(reader, "stages", 10'000);
  plan.tensor_parallel = read_counts(reader, "tensor_parallel", 1024);
  plan.single_lane = reader.optional("single_lane", plan.single_lane);
  plan.policy = reader.optional<std::string>("policy", plan.policy);
  plan.schedule = reader.optional<std::string>("schedule", plan.schedule);
  plan.profile = reader.optional<std::string>("profile", "");
  plan.index = reader.optional<std::string>("index", "");
  plan.max_deferral = reader.optional("max_deferral", plan.max_deferral);
  check_whole(reader, "max_deferral", plan.max_deferral, {-1, 65'536}, " (-1: any distance)");
  plan.chunks = reader.optional("chunks", plan.chunks);
  plan.evaluations = reader.optional("evaluations", plan.evaluations);
  check_whole(reader, "evaluations", plan.evaluations, {0, 1'000'000});
  plan.assign_threads = reader.optional("assign_threads", plan.assign_threads);
  check_whole(reader, "assign_threads", plan.assign_threads, {1, 1024});
  for (const auto& [value, where] : reader.array("without")) {
    plan.without.push_back(value_as<std::string>(*value, where));
  }
  plan.bytes_per_lane_mib =
      reader.optional<std::int64_t>("bytes_per_lane_mib", plan.bytes_per_lane_mib);
  check_whole(
      reader, "bytes_per_lane_mib", plan.bytes_per_lane_mib, {0, kMostMebibytes}, " (0: no limit)");
  plan.shard_optimizer = own_value<bool>(reader, "shard_optimizer");
  reader.finish();
  return plan;
}

PartOptimizer read_part_optimizer(ObjectReader& reader) {
  PartOptimizer part;
  part.learning_rate = own_value<double>(reader, "learning_rate");
  part.final_fraction = own_value<double>(reader, "final_fraction");
  part.warmup_steps = own_value<int>(reader, "warmup_steps");
  part.weight_decay = own_value<double>(reader, "weight_decay");
  reader.finish();
  return part;
}

void check_rates(const OptimizerConfig& config, const ObjectReader& reader) {
  check_number(reader, "learning_rate", config.learning_rate, {0, 1000, true});
  check_number(reader, "final_fraction", config.final_fraction, {0, 1});
  check_whole(reader, "warmup_steps", config.warmup_steps, {0, kMostSteps});
  check_number(reader, "weight_decay", config.weight_decay, {0, 1000});
}

OptimizerConfig read_optimizer(ObjectReader reader) {
  OptimizerConfig config;
  config.learning_rate = reader.optional("learning_rate", config.learning_rate);
  config.final_fraction = reader.optional("final_fraction", config.final_fraction);
  config.warmup_steps = reader.optional("warmup_steps", config.warmup_steps);
  config.weight_decay = reader.optional("weight_decay", config.weight_decay);
  check_rates(config, reader);
  config.update_every = reader.optional("update_every", config.update_every);
  check_whole(reader, "update_every", config.update_every, {1, 1'000'000});
  if (const Json* modules = reader.find("modules")) {
    for (const auto& [name, table] : modules->items()) {
      ObjectReader part(table, reader.where("modules." + name));
      config.modules[name] = read_part_optimizer(part);
      check_rates(optimizer_of(config, name), part);
    }
  }
  config.beta1 = reader.optional("beta1", config.beta1);
  check_number(reader, "beta1", config.beta1, {0, 1, false, true});
  config.beta2 = reader.optional("beta2", config.beta2);
  check_number(reader, "beta2", config.beta2, {0, 1, false, true});
  config.epsilon = reader.optional("epsilon", config.epsilon);
  check_number(reader, "epsilon", config.epsilon, {0, 1, true});
  config.clip_norm = reader.optional("clip_norm", config.clip_norm);
  check_number(reader, "clip_norm", config.clip_norm, {0, 1e9}, " (0: no clipping)");
  reader.finish();
  return config;
}

ValidationConfig read_validation(ObjectReader reader) {
  ValidationConfig config;
  config.every = reader.optional("every", config.every);
  check_whole(reader, "every", config.every, {0, kMostSteps}, " (0: only at the end)");
  config.samples = reader.optional("samples", config.samples);
  check_whole(reader, "samples", config.samples, {1, 1'000'000'000});
  reader.finish();
  return config;
}

CheckpointConfig read_checkpoint(ObjectReader reader) {
  CheckpointConfig config;
  config.every_steps = reader.optional<std::int64_t>("every_steps", config.every_steps);
  check_whole(reader,
              "every_steps",
              config.every_steps,
              {0, kMostSteps},
              " (0: only by every_minutes and at the end)");
  config.every_minutes = reader.optional("every_minutes", config.every_minutes);
  check_number(reader, "every_minutes", config.every_minutes, {0, 525'600}, " (0: off)");
  config.keep = reader.optional("keep", config.keep);
  check_whole(reader, "keep", config.keep, {1, 1'000'000});
  config.folder = reader.optional<std::string>("folder", "");
  config.resume = reader.optional<std::string>("resume", config.resume);
  require(!config.resume.empty(), reader, "resume", "\"auto\", \"accept\", \"never\" or a path");
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

RecomputePolicy read_recompute(ObjectReader& reader) {
  const Json* value = reader.find("recompute");
  if (value == nullptr) {
    return {};
  }
  if (value->is_number_integer() && value->get<std::int64_t>() >= 1) {
    return {RecomputeKind::kEvery, value_as<int>(*value, reader.where("recompute"))};
  }
  for (const auto& [name, kind] : kRecomputeNames) {
    if (value->is_string() && value->get<std::string>() == name) {
      return {kind, 0};
    }
  }
  reader.fail("recompute",
              concat(value->dump(),
                     " given; allowed: \"plan\", \"none\", \"full\", \"fit\", or n >= 1 for one of "
                     "every n layers"));
}

ExecutionConfig read_execution(ObjectReader reader) {
  ExecutionConfig config;
  config.device = reader.optional<std::string>("device", config.device);
  check_name(reader, "device", config.device, kDevices);
  config.device_messages = reader.optional<std::string>("device_messages", config.device_messages);
  check_name(reader, "device_messages", config.device_messages, kDeviceMessages);
  require(config.device_messages != kNccl || config.device == "cuda",
          reader,
          "device_messages",
          "\"host\" unless device = \"cuda\"");
  config.precision = precision_of(reader.optional<std::string>("precision", "fp32"), reader);
  config.recompute = read_recompute(reader);
  config.paced = reader.optional("paced", config.paced);
  config.overlap_reduction = reader.optional("overlap_reduction", config.overlap_reduction);
  config.memory_check = reader.optional<std::string>("memory_check", config.memory_check);
  check_name(reader, "memory_check", config.memory_check, kMemoryChecks);
  config.measure_memory = reader.optional("measure_memory", config.measure_memory);
  config.log_samples = reader.optional("log_samples", config.log_samples);
  config.deadline_seconds = reader.optional("deadline_seconds", config.deadline_seconds);
  check_number(reader, "deadline_seconds", config.deadline_seconds, {0, 604'800, true});
  config.stop_seconds = reader.optional("stop_seconds", config.stop_seconds);
  check_number(reader, "stop_seconds", config.stop_seconds, {0, 86'400});
  config.trace_step = reader.optional("trace_step", config.trace_step);
  check_whole(reader, "trace_step", config.trace_step, {-1, kMostSteps}, " (-1: none)");
  for (const auto& [value, where] : reader.array("fault_drill")) {
    config.fault_drill.push_back(value_as<int>(*value, where));
  }
  require(config.fault_drill.empty() || config.fault_drill.size() == 3,
          reader,
          "fault_drill",
          "[replica, lane, step], or [] for none");
  config.fault_kind = reader.optional<std::string>("fault_kind", config.fault_kind);
  check_name(reader, "fault_kind", config.fault_kind, kFaultNames);
  reader.finish();
  return config;
}

FaultConfig read_faults(ObjectReader reader) {
  constexpr std::array<std::string_view, 2> kRules = {"stop", kSkipStep};
  FaultConfig config;
  config.on_bad_sample = reader.optional<std::string>("on_bad_sample", config.on_bad_sample);
  check_name(reader, "on_bad_sample", config.on_bad_sample, kRules);
  config.on_nan = reader.optional<std::string>("on_nan", config.on_nan);
  check_name(reader, "on_nan", config.on_nan, kRules);
  config.max_skips_in_a_row = reader.optional("max_skips_in_a_row", config.max_skips_in_a_row);
  check_whole(reader, "max_skips_in_a_row", config.max_skips_in_a_row, {0, kMostSteps});
  reader.finish();
  return config;
}

MetricsConfig read_metrics(ObjectReader reader) {
  MetricsConfig config;
  config.tensorboard = reader.optional("tensorboard", config.tensorboard);
  config.prometheus = reader.optional<std::string>("prometheus", config.prometheus);
  reader.finish();
  return config;
}

InitConfig read_init(ObjectReader reader) {
  InitConfig config;
  config.from = reader.optional<std::string>("from", config.from);
  for (const auto& [key, words] :
       {std::pair("modules", &config.modules), std::pair("random", &config.random)}) {
    for (const auto& [value, value_where] : reader.array(key)) {
      words->push_back(value_as<std::string>(*value, value_where));
    }
  }
  config.adapter = reader.optional<std::string>("adapter", config.adapter);
  reader.finish();
  return config;
}

std::optional<LoraConfig> read_lora_config(ObjectReader& reader) {
  if (!reader.has("lora")) {
    return std::nullopt;
  }
  ObjectReader table = reader.object("lora");
  LoraConfig config;
  static_cast<LoraSpec&>(config) = read_lora(table);
  config.export_as = table.optional("export", config.export_as);
  if (config.export_as != kExportMerged && config.export_as != kExportAdapter) {
    table.fail("export", concat("'", config.export_as, "' given; allowed: merged, adapter"));
  }
  if (config.export_as == kExportAdapter && !config.train.empty()) {
    table.fail("export",
               "'adapter' given beside train, whose parameters an adapter does not hold; allowed: "
               "merged");
  }
  table.finish();
  return config;
}

// How long the run is: one of steps and epochs.
void read_length(ObjectReader& reader, RunConfig& config) {
  config.steps = reader.optional<std::int64_t>("steps", 0);
  config.epochs = reader.optional<std::int64_t>("epochs", 0);
  const bool steps = reader.has("steps");
  const bool epochs = reader.has("epochs");
  if (steps && epochs) {
    reader.fail("steps", "given beside epochs; give one of the two");
  }
  if (!steps && !epochs) {
    try {
      reader.at("steps");  // which names a misspelled key
    } catch (const InvalidInput& missing) {
      throw InvalidInput(concat(missing.what(), "; give steps or epochs"));
    }
  }
  if (epochs) {
    check_whole(reader, "epochs", config.epochs, {1, 1'000'000});
  } else {
    check_whole(reader, "steps", config.steps, {1, kMostSteps});
  }
}

}  // namespace

std::string_view name_of(Precision precision) {
  return precision == Precision::kFp32 ? "fp32" : "bf16";
}

std::string_view dtype_name_of(Precision precision) {
  return precision == Precision::kFp32 ? "float32" : "bfloat16";
}

RunConfig run_config_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  RunConfig config;
  config.output = reader.required<std::string>("output");
  if (config.output.empty()) {
    reader.fail("output", "'' given; the run needs a folder of its own");
  }
  std::error_code error;
  if (std::filesystem::exists(config.output, error) &&
      !std::filesystem::is_directory(config.output, error)) {
    reader.fail("output", concat("'", config.output, "' is not a folder"));
  }
  read_length(reader, config);
  config.seed = reader.optional<std::uint64_t>("seed", 0);
  config.model_file = reader.required<std::string>("model");
  config.model_dtype = reader.optional("model_dtype", config.model_dtype);
  if (!config.model_dtype.empty()) {
    check_name(reader, "model_dtype", config.model_dtype, kModelDtypes);
    if (!std::filesystem::is_directory(config.model_file)) {
      reader.fail("model_dtype",
                  concat("'",
                         config.model_file,
                         "' is no Hugging Face folder, of which the run would write another"));
    }
  }
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
  config.faults = read_faults(table("faults"));
  config.metrics = read_metrics(table("metrics"));
  config.init = read_init(table("init"));
  config.lora = read_lora_config(reader);
  reader.finish();
  check_whole_updates(config, where);
  return config;
}

// A run and its checkpoints end with updates: gradients between updates are not stored.
void check_whole_updates(const RunConfig& config, const std::string& where) {
  const int every = config.optimizer.update_every;
  const auto check = [&](const char* key, std::int64_t value) {
    if (value % every != 0) {
      throw InvalidInput(concat(where,
                                ": ",
                                key,
                                " = ",
                                value,
                                "; allowed: multiples of optimizer.update_every = ",
                                every));
    }
  };
  check("steps", config.steps);
  check("checkpoint.every_steps", config.checkpoint.every_steps);
}

}  // namespace entrain::engine
