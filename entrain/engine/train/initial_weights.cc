#include "entrain/engine/train/initial_weights.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/families/family.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/checkpoint/hf_folder.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::string> parts_of(const ModelSpec& model) {
  std::vector<std::string> parts = {"llm"};
  for (const EncoderSpec& encoder : model.encoders) {
    parts.push_back(encoder.name);
    parts.push_back(encoder.name + ".projector");
  }
  return parts;
}

// The parts that words name; `projector` is all encoders'.
std::set<std::string> named_parts(const ModelSpec& model,
                                  const std::vector<std::string>& words,
                                  const std::string& where) {
  std::vector<std::string> allowed = parts_of(model);
  allowed.emplace_back("projector");
  std::set<std::string> parts;
  for (const std::string& word : words) {
    check_name(where, "module", word, allowed);
    if (word != "projector") {
      parts.insert(word);
      continue;
    }
    for (const EncoderSpec& encoder : model.encoders) {
      parts.insert(encoder.name + ".projector");
    }
  }
  return parts;
}

// Shapes of the parameters of the parts, by name.
std::map<std::string, std::vector<std::int64_t>> needed_by(const ModelSpec& model,
                                                           const std::set<std::string>& parts,
                                                           bool adapters) {
  std::map<std::string, std::vector<std::int64_t>> needed;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      for (const ParameterSpec& parameter : parameters_of(model, module, layer)) {
        if (parts.contains(part_of_parameter(model, parameter.name)) &&
            (adapters || !is_adapter_name(parameter.name))) {
          needed[parameter.name] = parameter.shape;
        }
      }
    }
  }
  return needed;
}

// That the file or folder has every parameter of the parts, in the model's shape; notes whether it
// has adapters.
void check_needed(InitialWeights& initial, const ModelSpec& model) {
  std::map<std::string, std::int64_t> held;  // numbers of each
  if (initial.folder.has_value()) {
    for (const auto& [name, place] : initial.folder->parameters) {
      held[name] = count_of(initial.folder->entry(place).shape);
    }
  } else {
    for (const TensorInfo& info : read_weight_header(initial.from)) {
      held[info.name] = count_of(info.shape);
    }
  }
  const auto adapter =
      std::ranges::find_if(held, [](const auto& entry) { return is_adapter_name(entry.first); });
  initial.has_adapters = adapter != held.end();
  if (initial.has_adapters && !has_lora(model)) {
    throw InvalidInput(concat(initial.from.string(),
                              ": has adapters, such as '",
                              adapter->first,
                              "'; the run has none: give its [lora]"));
  }
  for (const auto& [name, shape] : needed_by(model, initial.parts, initial.has_adapters)) {
    const auto found = held.find(name);
    if (found == held.end() || found->second != count_of(shape)) {
      throw InvalidInput(concat(initial.from.string(),
                                ": '",
                                name,
                                found == held.end()
                                    ? std::string("' is missing; the model needs it")
                                    : concat("' has another size than the model's: ",
                                             found->second,
                                             " values, needed are ",
                                             count_of(shape))));
    }
  }
}

}  // namespace

std::string part_of_parameter(const ModelSpec& model, const std::string& name) {
  for (const EncoderSpec& encoder : model.encoders) {
    const std::string prefix = parameter_prefix(encoder) + ".";
    if (name.starts_with(prefix)) {
      const bool projector =
          name.starts_with(prefix + "merger.") || name.starts_with(prefix + "deepstack.");
      return projector ? encoder.name + ".projector" : encoder.name;
    }
  }
  return "llm";
}

std::optional<InitialWeights> read_initial_weights(const RunConfig& config,
                                                   const ModelSpec& model) {
  const InitConfig& init = config.init;
  const bool of_model = init.from.empty();
  const bool folder_model = fs::is_directory(config.model_file);
  if (!folder_model && (!init.adapter.empty() ||
                        (config.lora.has_value() && config.lora->export_as == kExportAdapter))) {
    throw InvalidInput(concat(init.adapter.empty() ? "lora.export: 'adapter'" : "init.adapter",
                              " given; needs a Hugging Face folder as model, whose modules name "
                              "the adapters"));
  }
  if (!init.adapter.empty() && !config.lora.has_value()) {
    throw InvalidInput("init.adapter: given without [lora], which says what it holds");
  }
  if (of_model && !folder_model) {
    if (!init.modules.empty() || !init.random.empty()) {
      throw InvalidInput("init: modules or random given without from");
    }
    return std::nullopt;
  }
  InitialWeights initial;
  initial.from = of_model ? config.model_file : init.from;
  const std::vector<std::string> all = parts_of(model);
  initial.parts = init.modules.empty() ? std::set<std::string>(all.begin(), all.end())
                                       : named_parts(model, init.modules, "init.modules");
  for (const std::string& part : named_parts(model, init.random, "init.random")) {
    initial.parts.erase(part);
  }
  if (fs::is_directory(initial.from)) {
    initial.folder = read_hf_tensors(initial.from, read_hf_model(initial.from));
  }
  check_needed(initial, model);
  if (!init.adapter.empty()) {
    initial.adapter = read_adapter_folder(init.adapter, model, read_hf_model(config.model_file));
  }
  return initial;
}

void load_initial_weights(const InitialWeights& initial,
                          const ModelSpec& model,
                          Executor& executor) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> values;
  std::vector<NamedParameter> loaded;
  std::vector<NamedParameter> adapters;
  for (const NamedParameter& weight : executor.weights()) {
    values.push_back({weight.name, weight.tensor.clone()});
    if (is_adapter_name(weight.name) && (initial.adapter.has_value() || !initial.has_adapters)) {
      adapters.push_back(values.back());
    } else if (initial.parts.contains(part_of_parameter(model, weight.name))) {
      loaded.push_back(values.back());
    }
  }
  if (initial.folder.has_value()) {
    load_hf_weights(*initial.folder, loaded);
  } else if (!loaded.empty()) {
    load_weights(initial.from, loaded);
  }
  if (initial.adapter.has_value()) {
    load_adapters(*initial.adapter, adapters);
  }
  executor.set_weights(values);
}

}  // namespace entrain::engine
