#include "entrain/engine/train/run_config.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "entrain/core/base/ranges.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/hold.h"
#include "entrain/core/spec/limits.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/pipeline/fault_kinds.h"
#include "entrain/engine/train/config_table.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kMostMebibytes = 1'000'000'000;

constexpr std::array<std::string_view, 2> kLastBatchRules = {"drop", kKeepLastBatch};

void data_keys(ConfigTable& table, DataConfig& data) {
  table.required("train", data.train);
  table.key("validation", data.validation);
  table.key("validation_fraction", data.validation_fraction, {0, 1, false, true}, " (0: none)");
  table.require(data.validation.empty() || data.validation_fraction == 0,
                "validation_fraction",
                "0 where data.validation names an index");
  table.required("global_batch", data.global_batch);
  table.check_range("global_batch", data.global_batch, {1, 1'000'000});
  table.key("last_batch", data.last_batch, kLastBatchRules);
  table.key("hold", data.hold, {0, kMostHeldSteps}, " (0 or 1: off)");
  data.hold = std::max(1, data.hold);
  if (ObjectReader* reader = table.reader(); reader == nullptr) {
    table.written()["mixture"] = to_json(data.mixture);
  } else if (const Json* given = reader->find("mixture"); given != nullptr && !given->empty()) {
    data.mixture = read_mixture(*given, reader->where("mixture"));
    table.require(data.last_batch == "drop", "last_batch", "\"drop\" where there is a mixture");
  }
  table.key("ignore_modality", data.ignore_modality);
  for (const std::string& medium : data.ignore_modality) {
    table.check_name("ignore_modality", medium, kMediaNames);
  }
  table.key("read_ahead_mib", data.read_ahead_mib, {1, 1'000'000});
  table.key("decode_threads", data.decode_threads, {0, 256}, " (0: by the cores)");
  table.key("share_decoding", data.share_decoding);
  table.key("feed", data.feed);
  table.key("feed_key", data.feed_key);
  table.key("feed_deadline_s", data.feed_deadline_s);
  table.require(data.feed_deadline_s >= 0.1 && data.feed_deadline_s <= 3600,
                "feed_deadline_s",
                "0.1 to 3600");
}

// A number for every module that the table names, in [1, most].
void count_keys(ConfigTable& table,
                const char* name,
                std::map<std::string, int>& counts,
                int most) {
  ObjectReader* reader = table.reader();
  if (reader == nullptr) {
    table.written()[name] = counts;
    return;
  }
  if (const Json* given = reader->find(name)) {
    for (const auto& [module, value] : given->items()) {
      const std::string where = reader->where(concat(name, ".", module));
      const int count = value_as<int>(value, where);
      if (const std::string error = range_error(std::int64_t{count}, WholeRange{1, most});
          !error.empty()) {
        throw InvalidInput(concat(where, ": ", error));
      }
      counts[module] = count;
    }
  }
}

void plan_keys(ConfigTable& table, PlanConfig& plan) {
  table.key("file", plan.file);
  table.key("replicas", plan.replicas, {1, kMostReplicas});
  table.key("num_slots", plan.num_slots, {1, kMostSlots});
  count_keys(table, "stages", plan.stages, 10'000);
  count_keys(table, "tensor_parallel", plan.tensor_parallel, 1024);
  table.key("single_lane", plan.single_lane);
  table.key("policy", plan.policy);
  table.key("schedule", plan.schedule);
  table.key("profile", plan.profile);
  table.key("index", plan.index);
  table.key("max_deferral", plan.max_deferral, {-1, 65'536}, " (-1: any distance)");
  table.key("chunks", plan.chunks);
  table.key("evaluations", plan.evaluations, {0, 1'000'000});
  table.key("assign_threads", plan.assign_threads, {1, 1024});
  table.key("without", plan.without);
  table.key("bytes_per_lane_mib", plan.bytes_per_lane_mib, {0, kMostMebibytes}, " (0: no limit)");
  table.key("shard_optimizer", plan.shard_optimizer);
}

// Of [optimizer], or of a part that overrides it.
template <class Rates>
void rate_keys(ConfigTable& table, Rates& rates) {
  table.key("learning_rate", rates.learning_rate, {0, 1000, true});
  table.key("final_fraction", rates.final_fraction, {0, 1});
  table.key("warmup_steps", rates.warmup_steps, {0, kMostSteps});
  table.key("weight_decay", rates.weight_decay, {0, 1000});
}

void part_keys(ConfigTable& table, std::map<std::string, PartOptimizer>& parts) {
  ObjectReader* reader = table.reader();
  if (reader == nullptr) {
    Json& written = table.written()["modules"] = Json::object();
    for (auto& [name, part] : parts) {
      ConfigTable own;
      rate_keys(own, part);
      written[name] = own.written();
    }
  } else if (const Json* given = reader->find("modules")) {
    for (const auto& [name, document] : given->items()) {
      ConfigTable own(document, reader->where("modules." + name));
      rate_keys(own, parts[name]);
      own.reader()->finish();
    }
  }
}

void optimizer_keys(ConfigTable& table, OptimizerConfig& config) {
  rate_keys(table, config);
  if (ObjectReader* reader = table.reader()) {  // messages list these two before beta1
    reader->has("update_every");
    reader->has("modules");
  }
  table.key("beta1", config.beta1, {0, 1, false, true});
  table.key("beta2", config.beta2, {0, 1, false, true});
  table.key("epsilon", config.epsilon, {0, 1, true});
  table.key("clip_norm", config.clip_norm, {0, 1e9}, " (0: no clipping)");
  table.key("update_every", config.update_every, {1, 1'000'000});
  part_keys(table, config.modules);
}

void validation_keys(ConfigTable& table, ValidationConfig& config) {
  table.key("every", config.every, {0, kMostSteps}, " (0: only at the end)");
  table.key("samples", config.samples, {1, 1'000'000'000});
}

void checkpoint_keys(ConfigTable& table, CheckpointConfig& config) {
  table.key("every_steps",
            config.every_steps,
            {0, kMostSteps},
            " (0: only by every_minutes and at the end)");
  table.key("every_minutes", config.every_minutes, {0, 525'600}, " (0: off)");
  table.key("keep", config.keep, {1, 1'000'000});
  table.key("folder", config.folder);
  table.key("resume", config.resume);
  table.require(!config.resume.empty(), "resume", "\"auto\", \"accept\", \"never\" or a path");
}

void precision_key(ConfigTable& table, Precision& precision) {
  std::string name(name_of(precision));
  table.key("precision", name);
  for (const Precision known : {Precision::kFp32, Precision::kBf16}) {
    if (name == name_of(known)) {
      precision = known;
      return;
    }
  }
  table.reader()->fail("precision", concat("'", name, "' given; allowed: \"fp32\", \"bf16\""));
}

Json to_json(const RecomputePolicy& policy) {
  for (const auto& [name, kind] : kRecomputeNames) {
    if (kind == policy.kind) {
      return name;
    }
  }
  return policy.every;
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

void execution_keys(ConfigTable& table, ExecutionConfig& config) {
  table.key("device", config.device, kDevices);
  table.key("device_messages", config.device_messages, kDeviceMessages);
  table.require(config.device_messages != kNccl || config.device == "cuda",
                "device_messages",
                "\"host\" unless device = \"cuda\"");
  precision_key(table, config.precision);
  if (ObjectReader* reader = table.reader()) {
    config.recompute = read_recompute(*reader);
  } else {
    table.written()["recompute"] = to_json(config.recompute);
  }
  table.key("paced", config.paced);
  table.key("overlap_reduction", config.overlap_reduction);
  table.key("memory_check", config.memory_check, kMemoryChecks);
  table.key("measure_memory", config.measure_memory);
  table.key("log_samples", config.log_samples);
  table.key("deadline_seconds", config.deadline_seconds, {0, 604'800, true});
  table.key("stop_seconds", config.stop_seconds, {0, 86'400});
  table.key("trace_step", config.trace_step, {-1, kMostSteps}, " (-1: none)");
  table.key("fault_drill", config.fault_drill);
  table.require(config.fault_drill.empty() || config.fault_drill.size() == 3,
                "fault_drill",
                "[replica, lane, step], or [] for none");
  table.key("fault_kind", config.fault_kind, kFaultNames);
}

void fault_keys(ConfigTable& table, FaultConfig& config) {
  constexpr std::array<std::string_view, 2> kRules = {"stop", kSkipStep};
  table.key("on_bad_sample", config.on_bad_sample, kRules);
  table.key("on_nan", config.on_nan, kRules);
  table.key("max_skips_in_a_row", config.max_skips_in_a_row, {0, kMostSteps});
}

void metrics_keys(ConfigTable& table, MetricsConfig& config) {
  table.key("tensorboard", config.tensorboard);
  table.key("prometheus", config.prometheus);
}

void init_keys(ConfigTable& table, InitConfig& config) {
  table.key("from", config.from);
  table.key("modules", config.modules);
  table.key("random", config.random);
  if (table.reader() != nullptr || !config.adapter.empty()) {
    table.key("adapter", config.adapter);
  }
}

// The tables that every saved configuration has.
void table_keys(ConfigTable& run, RunConfig& config) {
  run.table("data", data_keys, config.data);
  run.table("plan", plan_keys, config.plan);
  run.table("optimizer", optimizer_keys, config.optimizer);
  run.table("validation", validation_keys, config.validation);
  run.table("checkpoint", checkpoint_keys, config.checkpoint);
  run.table("execution", execution_keys, config.execution);
  run.table("faults", fault_keys, config.faults);
  run.table("metrics", metrics_keys, config.metrics);
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
void read_length(ConfigTable& run, RunConfig& config) {
  ObjectReader& reader = *run.reader();
  run.key("steps", config.steps);
  run.key("epochs", config.epochs);
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
    run.check_range("epochs", config.epochs, {1, 1'000'000});
  } else {
    run.check_range("steps", config.steps, {1, kMostSteps});
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
  ConfigTable run(document, where);
  ObjectReader& reader = *run.reader();
  RunConfig config;
  run.required("output", config.output);
  if (config.output.empty()) {
    reader.fail("output", "'' given; the run needs a folder of its own");
  }
  std::error_code error;
  if (std::filesystem::exists(config.output, error) &&
      !std::filesystem::is_directory(config.output, error)) {
    reader.fail("output", concat("'", config.output, "' is not a folder"));
  }
  read_length(run, config);
  run.key("seed", config.seed);
  run.required("model", config.model_file);
  run.key("model_dtype", config.model_dtype);
  if (!config.model_dtype.empty()) {
    run.check_name("model_dtype", config.model_dtype, kModelDtypes);
    if (!std::filesystem::is_directory(config.model_file)) {
      reader.fail("model_dtype",
                  concat("'",
                         config.model_file,
                         "' is no Hugging Face folder, of which the run would write another"));
    }
  }
  run.key("freeze", config.freeze);
  reader.at("data");  // the only table that a run file must have
  table_keys(run, config);
  run.table("init", init_keys, config.init);
  config.lora = read_lora_config(reader);
  reader.finish();
  check_whole_updates(config, where);
  return config;
}

Json to_json(const RunConfig& config) {
  RunConfig values = config;  // not changed: the tables are only written
  ConfigTable run;
  Json& document = run.written();
  run.key("output", values.output);
  run.key(config.epochs > 0 ? "epochs" : "steps", config.epochs > 0 ? values.epochs : values.steps);
  run.key("seed", values.seed);
  run.key("model", values.model_file);
  run.key("freeze", values.freeze);
  table_keys(run, values);
  const InitConfig& init = config.init;
  if (!init.from.empty() || !init.modules.empty() || !init.random.empty() ||
      !init.adapter.empty()) {
    run.table("init", init_keys, values.init);
  }
  if (!config.model_dtype.empty()) {
    run.key("model_dtype", values.model_dtype);
  }
  if (config.lora.has_value()) {
    document["lora"] = to_json(static_cast<const LoraSpec&>(*config.lora));
    document["lora"]["export"] = config.lora->export_as;
  }
  return document;
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
