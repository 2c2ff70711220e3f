#include "entrain/engine/checkpoint/adapter_folder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/families/hf_tensors.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr const char* kRoot = "base_model.model.";

std::vector<ParameterSpec> adapters_of(const ModelSpec& model) {
  std::vector<ParameterSpec> adapters;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      for (ParameterSpec& parameter : parameters_of(model, module, layer)) {
        if (is_adapter_name(parameter.name)) {
          adapters.push_back(std::move(parameter));
        }
      }
    }
  }
  return adapters;
}

// "x.lora_A.weight" → "x", ".lora_A.weight".
std::pair<std::string, std::string> matrix_and_kind(const std::string& adapter) {
  const std::size_t kind = adapter.size() - std::string_view(kLoraA).size();
  return {adapter.substr(0, kind), adapter.substr(kind)};
}

// The paths that files may give the module of an adapter's matrix; the last is that of the class.
std::vector<std::string> module_paths(const HfModel& hf, const std::string& matrix) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> paths = hf_names(hf, matrix + std::string(kWeight));
  for (std::string& path : paths) {
    path.resize(path.size() - kWeight.size());
  }
  return paths;
}

Json config_of(const LoraSpec& lora,
               const std::vector<std::string>& modules,
               const std::string& base_model) {
  const double alpha = lora.alpha;
  return {{"peft_type", "LORA"},
          {"task_type", nullptr},
          {"base_model_name_or_path", base_model},
          {"r", lora.rank},
          {"lora_alpha", alpha == std::floor(alpha) ? Json(std::llround(alpha)) : Json(alpha)},
          {"target_modules", modules},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"modules_to_save", nullptr},
          {"rank_pattern", Json::object()},
          {"alpha_pattern", Json::object()},
          {"use_dora", false},
          {"use_rslora", false}};
}

// Whether a key that Entrain does not know says nothing.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

void check_config(const fs::path& path, const LoraSpec& lora) {
  const Json document = read_json_file(path);
  ObjectReader reader(document, path.string());
  const auto expect = [&](const char* key, const Json& allowed) {
    const Json* given = reader.find(key);
    if (given != nullptr && *given != allowed) {
      reader.fail(key, concat(given->dump(), " given; allowed: ", allowed.dump()));
    }
  };
  if (reader.required<std::string>("peft_type") != "LORA") {
    reader.fail("peft_type", concat(document["peft_type"].dump(), " given; allowed: \"LORA\""));
  }
  const auto rank = reader.required<int>("r");
  const auto alpha = reader.optional<double>("lora_alpha", 8.0);
  if (rank != lora.rank) {
    reader.fail("r", concat(rank, " given; lora.rank is ", lora.rank));
  }
  if (alpha != lora.alpha) {
    reader.fail("lora_alpha", concat(alpha, " given; lora.alpha is ", lora.alpha));
  }
  expect("bias", "none");
  // What the tensors themselves say, or training elsewhere did, or where the adapter came from.
  for (const char* key : {"target_modules",
                          "exclude_modules",
                          "base_model_name_or_path",
                          "auto_mapping",
                          "revision",
                          "task_type",
                          "inference_mode",
                          "init_lora_weights",
                          "lora_dropout",
                          "peft_version",
                          "qalora_group_size",
                          "megatron_core",
                          "runtime_config",
                          "ensure_weight_tying"}) {
    reader.find(key);
  }
  for (const auto& [key, value] : document.items()) {
    if (says_nothing(value)) {
      reader.find(key);
    }
  }
  reader.finish();
}

}  // namespace

at::Tensor merged_value(const ValueOf& value_of, const std::string& parameter, double scale) {
  const at::Tensor base = value_of(parameter);
  ENTRAIN_INVARIANT(base.defined(), concat("no value of '", parameter, "'"));
  constexpr std::string_view kWeight = ".weight";
  if (!parameter.ends_with(kWeight)) {
    return base;
  }
  const std::string matrix = parameter.substr(0, parameter.size() - kWeight.size());
  const at::Tensor a = value_of(matrix + kLoraA);
  const at::Tensor b = value_of(matrix + kLoraB);
  if (!a.defined() || !b.defined()) {
    return base;
  }
  const at::NoGradGuard no_grad;
  const at::ScalarType wide = at::promoteTypes(base.scalar_type(), at::kFloat);
  return base.to(wide) + at::mm(b.to(wide), a.to(wide)) * scale;
}

void write_adapter_folder(const ModelSpec& model,
                          const HfModel& hf,
                          const ValueOf& value_of,
                          const std::string& base_model,
                          const fs::path& target) {
  std::set<std::string> modules;
  std::vector<NamedParameter> tensors;
  for (const ParameterSpec& parameter : adapters_of(model)) {
    const auto [matrix, kind] = matrix_and_kind(parameter.name);
    const std::string path = module_paths(hf, matrix).back();
    modules.insert(path);
    tensors.push_back({kRoot + path + kind, value_of(parameter.name).detach()});
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  fs::create_directories(partial);
  write_weights(partial / kTensors, tensors, {{"format", "pt"}});
  const Json config = config_of(model.llm.lora, {modules.begin(), modules.end()}, base_model);
  write_file(partial / kConfig, config.dump(2) + "\n");
  replace_folder(partial, target);
}

AdapterFolder read_adapter_folder(const fs::path& folder,
                                  const ModelSpec& model,
                                  const HfModel& hf) {
  if (!fs::is_regular_file(folder / kConfig)) {
    throw InvalidInput(concat(folder.string(), ": no ", kConfig, " in this folder"));
  }
  check_config(folder / kConfig, model.llm.lora);
  AdapterFolder result;
  result.weights = folder / kTensors;
  std::map<std::string, TensorInfo> held;
  for (const TensorInfo& info : read_weight_header(result.weights)) {
    held.emplace(info.name, info);
  }
  const auto refuse = [&](const std::string& tensor, const std::string& why) {
    throw InvalidInput(concat(result.weights.string(), ": tensor '", tensor, "' ", why));
  };
  for (const ParameterSpec& parameter : adapters_of(model)) {
    const auto [matrix, kind] = matrix_and_kind(parameter.name);
    const std::vector<std::string> paths = module_paths(hf, matrix);
    const auto found = std::ranges::find_if(paths, [&, of = kind](const std::string& path) {
      return held.contains(kRoot + path + of);
    });
    const std::string name = kRoot + (found == paths.end() ? paths.back() : *found) + kind;
    if (found == paths.end()) {
      refuse(name, "is missing; lora.targets name its matrix");
    }
    const std::vector<std::int64_t>& shape = held.at(name).shape;
    if (shape != parameter.shape) {
      refuse(name,
             concat("has shape ",
                    at::IntArrayRef(shape),
                    ", the model needs ",
                    at::IntArrayRef(parameter.shape)));
    }
    result.names.emplace(parameter.name, name);
    held.erase(name);
  }
  for (const auto& [name, info] : held) {
    if (name.find(".base_layer.") != std::string::npos) {
      refuse(name,
             "is a copy of the base's weights, which an adapter has no need of; allowed: adapters "
             "alone (save_embedding_layers=False in peft)");
    }
  }
  if (!held.empty()) {
    refuse(held.begin()->first,
           "belongs to no adapter of this run: lora.targets do not name its matrix, or the model "
           "has none of this name");
  }
  return result;
}

void load_adapters(const AdapterFolder& folder, const std::vector<NamedParameter>& parameters) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> targets;  // by name in the file
  for (const NamedParameter& parameter : parameters) {
    targets.emplace(folder.names.at(parameter.name), parameter.tensor);
  }
  const WeightFile file =
      read_weights(folder.weights, [&](const std::string& name) { return targets.contains(name); });
  for (const NamedParameter& tensor : file.tensors) {
    check_finite(tensor, folder.weights.string());
    targets.at(tensor.name).copy_(tensor.tensor);
  }
}

}  // namespace entrain::engine
