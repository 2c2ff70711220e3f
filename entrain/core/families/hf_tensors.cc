#include "entrain/core/families/hf_tensors.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTiedHead = "lm_head.weight";

// What a parameter may look like in a folder.
struct Expected {
  std::string parameter;
  std::vector<std::int64_t> shape;
};

std::string spelled(const HfModel::Spelling& spelling, const std::string& name) {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& rule : spelling.prefixes) {
    if (name.starts_with(rule.first) &&
        (best == nullptr || rule.first.size() > best->first.size())) {
      best = &rule;
    }
  }
  std::string result = best == nullptr ? name : best->second + name.substr(best->first.size());
  if (name.starts_with("model.") || name.starts_with("lm_head.")) {
    return result;
  }
  for (const auto& [ours, theirs] : spelling.parts) {
    const std::size_t found = result.find(ours);
    if (found != std::string::npos) {
      result.replace(found, ours.size(), theirs);
    }
  }
  return result;
}

// By the name in files.
std::map<std::string, Expected> expected_tensors(const HfModel& model,
                                                 const HfModel::Spelling& spelling) {
  std::map<std::string, Expected> expected;
  const ModelSpec& spec = model.model;
  for (int module = 0; module < spec.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(spec, module); ++layer) {
      for (const ParameterSpec& parameter : parameters_of(spec, module, layer)) {
        const auto shape = model.shapes.find(parameter.name);
        expected[spelled(spelling, parameter.name)] = {
            parameter.name, shape == model.shapes.end() ? parameter.shape : shape->second};
      }
    }
  }
  return expected;
}

HfFile read_header(const fs::path& path) {
  const std::string where = path.string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw InvalidInput(fmt::format("{}: no such weights file", where));
  }
  std::ifstream file(path, std::ios::binary);
  return {read_safetensors_header(file, fs::file_size(path, error), where), path};
}

std::vector<HfFile> read_headers(const fs::path& folder) {
  if (fs::is_regular_file(folder / kWhole)) {
    return {read_header(folder / kWhole)};
  }
  const fs::path index = folder / kIndex;
  if (!fs::is_regular_file(index)) {
    throw InvalidInput(
        fmt::format("{}: no weights; needed is {} or {}", folder.string(), kWhole, kIndex));
  }
  const Json document = read_json_file(index);
  ObjectReader reader(document, index.string());
  std::map<std::string, std::set<std::string>> named;  // tensors by file
  for (const auto& [tensor, file] : reader.at("weight_map").items()) {
    const auto name = value_as<std::string>(file, reader.where("weight_map." + tensor));
    if (fs::path(name).filename() != name) {
      reader.fail("weight_map." + tensor, fmt::format("'{}' is no file of the folder", name));
    }
    named[name].insert(tensor);
  }
  std::vector<HfFile> files;
  for (const auto& [name, tensors] : named) {
    files.push_back(read_header(folder / name));
    std::set<std::string> held;
    for (const SafetensorsEntry& entry : files.back().tensors.entries) {
      held.insert(entry.name);
    }
    std::vector<std::string> differ;
    std::set_symmetric_difference(
        tensors.begin(), tensors.end(), held.begin(), held.end(), std::back_inserter(differ));
    if (!differ.empty()) {
      throw InvalidInput(fmt::format("{}: '{}' is in one of the index and the file {} alone",
                                     index.string(),
                                     differ.front(),
                                     name));
    }
  }
  return files;
}

bool is_no_parameter(const HfModel& model, const std::string& name) {
  return std::any_of(model.no_parameters.begin(),
                     model.no_parameters.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

// The spelling of which the files have the most names.
HfModel::Spelling spelling_of(const HfModel& model, const std::set<std::string>& names) {
  std::size_t most = 0;
  HfModel::Spelling best = model.spellings.front();
  for (const HfModel::Spelling& spelling : model.spellings) {
    std::size_t found = 0;
    for (const auto& [name, expected] : expected_tensors(model, spelling)) {
      found += names.contains(name) ? 1 : 0;
    }
    if (found > most) {
      most = found;
      best = spelling;
    }
  }
  return best;
}

// ", did you mean 'x'?" or nothing: a model has hundreds of tensors.
std::string near_name(const std::string& name, const std::map<std::string, Expected>& expected) {
  std::vector<std::string> names;
  for (const auto& entry : expected) {
    names.push_back(entry.first);
  }
  return close_match(name, names);
}

}  // namespace

std::vector<std::string> hf_names(const HfModel& model, const std::string& parameter) {
  std::vector<std::string> names;
  for (const HfModel::Spelling& spelling : model.spellings) {
    names.push_back(spelled(spelling, parameter));
  }
  return names;
}

HfTensors read_hf_tensors(const fs::path& folder, const HfModel& model) {
  check_trainable(model.model, folder.string());
  HfTensors result;
  result.folder = folder;
  result.files = read_headers(folder);
  std::set<std::string> names;
  for (const HfFile& file : result.files) {
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      if (!names.insert(entry.name).second) {
        throw InvalidInput(
            fmt::format("{}: tensor '{}' is there twice", file.path.string(), entry.name));
      }
    }
  }
  const HfModel::Spelling spelling = spelling_of(model, names);
  const std::map<std::string, Expected> expected = expected_tensors(model, spelling);
  for (std::size_t f = 0; f < result.files.size(); ++f) {
    const HfFile& file = result.files[f];
    for (std::size_t e = 0; e < file.tensors.entries.size(); ++e) {
      const SafetensorsEntry& entry = file.tensors.entries[e];
      const bool tied = model.model.llm.tie_word_embeddings && entry.name == kTiedHead;
      const auto found = expected.find(tied ? spelled(spelling, kTokenTableName) : entry.name);
      if (found == expected.end()) {
        if (!is_no_parameter(model, entry.name)) {
          throw InvalidInput(
              fmt::format("{}: tensor '{}' is no parameter of a {} model as its "
                          "config.json describes it{}",
                          file.path.string(),
                          entry.name,
                          model.family,
                          near_name(entry.name, expected)));
        }
        result.owners[entry.name];
        continue;
      }
      if (entry.shape != found->second.shape) {
        throw InvalidInput(fmt::format("{}: tensor '{}' has shape [{}], the model needs [{}]",
                                       file.path.string(),
                                       entry.name,
                                       fmt::join(entry.shape, ", "),
                                       fmt::join(found->second.shape, ", ")));
      }
      result.owners[entry.name] = found->second.parameter;
      if (!tied || !result.parameters.contains(found->second.parameter)) {
        result.parameters[found->second.parameter] = {f, e};
      }
    }
  }
  for (const auto& [name, of] : expected) {
    if (!result.parameters.contains(of.parameter)) {
      throw InvalidInput(fmt::format("{}: the weights lack tensor '{}'", folder.string(), name));
    }
  }
  return result;
}

}  // namespace entrain
