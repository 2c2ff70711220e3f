#include "entrain/engine/train/model_folder.h"

#include <map>
#include <optional>
#include <string>

#include "entrain/core/families/hf_tensors.h"

#include "entrain/engine/checkpoint/adapter_folder.h"
#include "entrain/engine/checkpoint/hf_folder.h"

namespace entrain::engine {

void write_model_folder(const RunConfig& config,
                        const ModelSpec& model,
                        const std::vector<NamedParameter>& parameters,
                        const std::filesystem::path& target) {
  const std::filesystem::path source(config.model_file);
  std::map<std::string, at::Tensor> values;
  for (const NamedParameter& parameter : parameters) {
    values.emplace(parameter.name, parameter.tensor);
  }
  const auto value_of = [&](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? at::Tensor() : found->second;
  };
  const HfModel hf = read_hf_model(source);
  const std::optional<LoraConfig>& lora = config.lora;
  if (lora.has_value() && lora->export_as == kExportAdapter) {
    write_adapter_folder(model, hf, value_of, source.string(), target);
    return;
  }
  const double scale = lora.has_value() ? lora->scale() : 0.0;
  write_hf_folder(
      read_hf_tensors(source, hf),
      [&](const std::string& name) { return merged_value(value_of, name, scale); },
      target,
      config.model_dtype);
}

}  // namespace entrain::engine
