// What a configuration means to a run: its model, its folder of checkpoints, a part's options.
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/families/family.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

std::filesystem::path checkpoint_folder(const RunConfig& config) {
  return config.checkpoint.folder.empty() ? std::filesystem::path(config.output) / kCheckpointsName
                                          : std::filesystem::path(config.checkpoint.folder);
}

ModelSpec run_model(const RunConfig& config) {
  ModelSpec model = load_model(config.model_file);
  check_trainable(model, config.model_file);
  freeze_modules(model, config.freeze, "freeze");
  std::vector<std::string> parts = {"llm", "projector"};
  for (const EncoderSpec& encoder : model.encoders) {
    parts.push_back(encoder.name);
  }
  for (const auto& entry : config.optimizer.modules) {
    entrain::check_name("optimizer.modules", "part", entry.first, parts);
  }
  if (config.lora.has_value()) {
    add_lora(model, *config.lora, "lora");
  }
  for (int module = 0; module < model.num_modules(); ++module) {
    if (any_trainable(model, module)) {
      return model;
    }
  }
  throw InvalidInput("freeze: every module is frozen, so there is nothing to train");
}

OptimizerConfig optimizer_of(const OptimizerConfig& config, const std::string& part) {
  OptimizerConfig result = config;
  result.modules.clear();
  const auto found = config.modules.find(part);
  if (found != config.modules.end()) {
    const PartOptimizer& own = found->second;
    result.learning_rate = own.learning_rate.value_or(config.learning_rate);
    result.final_fraction = own.final_fraction.value_or(config.final_fraction);
    result.warmup_steps = own.warmup_steps.value_or(config.warmup_steps);
    result.weight_decay = own.weight_decay.value_or(config.weight_decay);
  }
  return result;
}

}  // namespace entrain::engine
