#include "entrain/engine/checkpoint/adapter_folder.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/models/weights.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

using oracle::error_of;
using oracle::TemporaryFolder;

class AdapterFolderTest : public testing::Test {
 protected:
  AdapterFolderTest() : hf_(hf_model_from_json(oracle::tiny_qwen_config(), "config.json")) {
    model_ = hf_.model;
    add_lora(model_, {2, 3.0, {"q_proj", "attn.qkv"}, {}}, "lora");
    for (int module = 0; module < model_.num_modules(); ++module) {
      for (int layer = 0; layer < num_layers(model_, module); ++layer) {
        for (const ParameterSpec& parameter : parameters_of(model_, module, layer)) {
          values_.emplace(parameter.name, at::randn(parameter.shape));
        }
      }
    }
  }

  [[nodiscard]] ValueOf value_of() const {
    return [this](const std::string& name) {
      const auto found = values_.find(name);
      return found == values_.end() ? at::Tensor() : found->second;
    };
  }
  void write() const { write_adapter_folder(model_, hf_, value_of(), "base", path()); }
  [[nodiscard]] fs::path path() const { return folder_.path() / "adapter"; }
  // What reading says after one key of adapter_config.json changed.
  [[nodiscard]] std::string message_with(const std::string& key, const Json& value) const {
    write();
    Json config = read_json_file(path() / "adapter_config.json");
    config[key] = value;
    write_file(path() / "adapter_config.json", config.dump());
    return message_of(model_);
  }
  [[nodiscard]] std::string message_of(const ModelSpec& model) const {
    const std::string message =
        error_of<InvalidInput>([&] { read_adapter_folder(path(), model, hf_); });
    const std::size_t name = message.find("adapter_");
    return name == std::string::npos ? message : message.substr(name);
  }

  TemporaryFolder folder_;
  HfModel hf_;
  ModelSpec model_;
  std::map<std::string, at::Tensor> values_;
};

TEST_F(AdapterFolderTest, ReadsWhatItWrote) {
  for (int time = 0; time < 2; ++time) {  // the second replaces the first
    write();
  }
  const AdapterFolder folder = read_adapter_folder(path(), model_, hf_);
  EXPECT_EQ(folder.names.size(), 8U);  // A and B of two matrices in two layers each
  std::vector<NamedParameter> parameters;
  for (const auto& [ours, theirs] : folder.names) {
    parameters.push_back({ours, at::zeros_like(values_.at(ours))});
  }
  load_adapters(folder, parameters);
  for (const NamedParameter& parameter : parameters) {
    EXPECT_TRUE(at::equal(parameter.tensor, values_.at(parameter.name))) << parameter.name;
  }
  EXPECT_EQ(folder.names.at("model.layers.1.self_attn.q_proj.lora_A.weight"),
            "base_model.model.model.language_model.layers.1.self_attn.q_proj.lora_A.weight");
  const Json config = read_json_file(path() / "adapter_config.json");
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 3);
  EXPECT_EQ(config["target_modules"].size(), 4U);
  EXPECT_EQ(config["target_modules"][2], "model.visual.blocks.0.attn.qkv");
}

TEST_F(AdapterFolderTest, RefusesOtherAdapters) {
  EXPECT_EQ(message_of(model_), "adapter_config.json in this folder");  // that there is none
  EXPECT_EQ(message_with("peft_type", "IA3"),
            "adapter_config.json: peft_type: \"IA3\" given; allowed: \"LORA\"");
  EXPECT_EQ(message_with("r", 4), "adapter_config.json: r: 4 given; lora.rank is 2");
  EXPECT_EQ(message_with("lora_alpha", 5.5),
            "adapter_config.json: lora_alpha: 5.5 given; lora.alpha is 3");
  EXPECT_EQ(message_with("bias", "all"),
            "adapter_config.json: bias: \"all\" given; allowed: \"none\"");
  EXPECT_TRUE(message_with("use_dora", true).starts_with("adapter_config.json: use_dora: "));
  EXPECT_TRUE(message_with("use_rslora", true).starts_with("adapter_config.json: use_rslora: "));
  EXPECT_TRUE(message_with("rank_pattern", {{"q_proj", 4}})
                  .starts_with("adapter_config.json: rank_pattern: "));
  EXPECT_TRUE(message_with("modules_to_save", {"lm_head"})
                  .starts_with("adapter_config.json: modules_to_save: "));
}

TEST_F(AdapterFolderTest, RefusesOtherTensors) {
  write();
  ModelSpec fewer = hf_.model;
  add_lora(fewer, {2, 3.0, {"attn.qkv"}, {}}, "lora");
  EXPECT_EQ(message_of(fewer),
            "adapter_model.safetensors: tensor 'base_model.model.model.language_model.layers.0."
            "self_attn.q_proj.lora_A.weight' belongs to no adapter of this run: lora.targets do "
            "not name its matrix, or the model has none of this name");
  ModelSpec more = hf_.model;
  add_lora(more, {2, 3.0, {"q_proj", "attn.qkv", "v_proj"}, {}}, "lora");
  EXPECT_EQ(message_of(more),
            "adapter_model.safetensors: tensor 'base_model.model.model.language_model.layers.0."
            "self_attn.v_proj.lora_A.weight' is missing; lora.targets name its matrix");
  const std::string changed = "model.layers.0.self_attn.q_proj.lora_A.weight";
  values_[changed] = at::randn({2, 7});
  write();
  const std::string of_shape = message_of(model_);
  EXPECT_NE(of_shape.find("has shape [2, 7], the model needs [2, "), std::string::npos) << of_shape;
}

TEST_F(AdapterFolderTest, RefusesValuesThatAreNotFinite) {
  const std::string name = "model.layers.0.self_attn.q_proj.lora_A.weight";
  values_.at(name).view(-1)[3] = std::numeric_limits<double>::infinity();
  write();
  const AdapterFolder folder = read_adapter_folder(path(), model_, hf_);
  const std::string message = error_of<InvalidInput>([&] {
    load_adapters(folder, {{name, at::zeros_like(values_.at(name))}});
  });
  EXPECT_NE(message.find("q_proj.lora_A.weight': 1 of "), std::string::npos) << message;
}

TEST_F(AdapterFolderTest, AddsAdaptersToTheirMatricesAlone) {
  const std::string matrix = "model.layers.1.self_attn.q_proj";
  const at::Tensor change =
      at::matmul(values_.at(matrix + kLoraB), values_.at(matrix + kLoraA)) * (3.0 / 2);
  const at::Tensor merged = merged_value(value_of(), matrix + ".weight", model_.llm.lora.scale());
  EXPECT_TRUE(at::allclose(merged, values_.at(matrix + ".weight") + change));
  EXPECT_FALSE(at::allclose(merged, values_.at(matrix + ".weight")));
  for (const std::string same :
       {"model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.q_proj.bias"}) {
    EXPECT_TRUE(merged_value(value_of(), same, 1.5).is_same(values_.at(same)));
  }
  values_[matrix + ".weight"] = values_.at(matrix + ".weight").to(at::kBFloat16);
  EXPECT_EQ(merged_value(value_of(), matrix + ".weight", 1.5).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace entrain::engine
