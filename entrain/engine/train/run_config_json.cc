// The resolved configuration as it is saved with the run.
#include <nlohmann/json.hpp>

#include "entrain/core/spec/training.h"

#include "entrain/engine/train/run_config.h"

namespace entrain::engine {
namespace {

Json counts_json(const std::map<std::string, int>& counts) {
  Json document = Json::object();
  for (const auto& [name, count] : counts) {
    document[name] = count;
  }
  return document;
}

Json to_json(const RecomputePolicy& policy) {
  for (const auto& [name, kind] : kRecomputeNames) {
    if (kind == policy.kind) {
      return name;
    }
  }
  return policy.every;
}

Json modules_to_json(const std::map<std::string, PartOptimizer>& modules) {
  Json result = Json::object();
  for (const auto& [name, part] : modules) {
    Json own = Json::object();
    const auto set = [&](const char* key, const auto& value) {
      if (value.has_value()) {
        own[key] = *value;
      }
    };
    set("learning_rate", part.learning_rate);
    set("final_fraction", part.final_fraction);
    set("warmup_steps", part.warmup_steps);
    set("weight_decay", part.weight_decay);
    result[name] = own;
  }
  return result;
}

}  // namespace

Json to_json(const RunConfig& config) {
  Json document = {
      {"output", config.output},
      {config.epochs > 0 ? "epochs" : "steps", config.epochs > 0 ? config.epochs : config.steps},
      {"seed", config.seed},
      {"model", config.model_file},
      {"freeze", config.freeze},
      {"data",
       {{"train", config.data.train},
        {"validation", config.data.validation},
        {"validation_fraction", config.data.validation_fraction},
        {"global_batch", config.data.global_batch},
        {"last_batch", config.data.last_batch},
        {"hold", config.data.hold},
        {"mixture", to_json(config.data.mixture)},
        {"ignore_modality", config.data.ignore_modality},
        {"read_ahead_mib", config.data.read_ahead_mib},
        {"decode_threads", config.data.decode_threads},
        {"share_decoding", config.data.share_decoding},
        {"feed", config.data.feed},
        {"feed_key", config.data.feed_key},
        {"feed_deadline_s", config.data.feed_deadline_s}}},
      {"plan",
       {{"file", config.plan.file},
        {"replicas", config.plan.replicas},
        {"num_slots", config.plan.num_slots},
        {"stages", counts_json(config.plan.stages)},
        {"tensor_parallel", counts_json(config.plan.tensor_parallel)},
        {"single_lane", config.plan.single_lane},
        {"policy", config.plan.policy},
        {"schedule", config.plan.schedule},
        {"profile", config.plan.profile},
        {"index", config.plan.index},
        {"max_deferral", config.plan.max_deferral},
        {"chunks", config.plan.chunks},
        {"evaluations", config.plan.evaluations},
        {"assign_threads", config.plan.assign_threads},
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
        {"clip_norm", config.optimizer.clip_norm},
        {"update_every", config.optimizer.update_every},
        {"modules", modules_to_json(config.optimizer.modules)}}},
      {"validation", {{"every", config.validation.every}, {"samples", config.validation.samples}}},
      {"checkpoint",
       {{"every_steps", config.checkpoint.every_steps},
        {"every_minutes", config.checkpoint.every_minutes},
        {"keep", config.checkpoint.keep},
        {"folder", config.checkpoint.folder},
        {"resume", config.checkpoint.resume}}},
      {"execution",
       {{"device", config.execution.device},
        {"device_messages", config.execution.device_messages},
        {"precision", name_of(config.execution.precision)},
        {"recompute", to_json(config.execution.recompute)},
        {"paced", config.execution.paced},
        {"overlap_reduction", config.execution.overlap_reduction},
        {"memory_check", config.execution.memory_check},
        {"measure_memory", config.execution.measure_memory},
        {"log_samples", config.execution.log_samples},
        {"deadline_seconds", config.execution.deadline_seconds},
        {"stop_seconds", config.execution.stop_seconds},
        {"trace_step", config.execution.trace_step},
        {"fault_drill", config.execution.fault_drill},
        {"fault_kind", config.execution.fault_kind}}},
      {"faults",
       {{"on_bad_sample", config.faults.on_bad_sample},
        {"on_nan", config.faults.on_nan},
        {"max_skips_in_a_row", config.faults.max_skips_in_a_row}}},
      {"metrics",
       {{"tensorboard", config.metrics.tensorboard}, {"prometheus", config.metrics.prometheus}}},
  };
  const InitConfig& init = config.init;
  if (!init.from.empty() || !init.modules.empty() || !init.random.empty() ||
      !init.adapter.empty()) {
    document["init"] = {{"from", init.from}, {"modules", init.modules}, {"random", init.random}};
  }
  if (!init.adapter.empty()) {
    document["init"]["adapter"] = init.adapter;
  }
  if (!config.model_dtype.empty()) {
    document["model_dtype"] = config.model_dtype;
  }
  if (config.lora.has_value()) {
    document["lora"] = to_json(static_cast<const LoraSpec&>(*config.lora));
    document["lora"]["export"] = config.lora->export_as;
  }
  if (config.plan.shard_optimizer.has_value()) {
    document["plan"]["shard_optimizer"] = *config.plan.shard_optimizer;
  }
  return document;
}

}  // namespace entrain::engine
