#include "entrain/core/spec/training.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/spec/parameters.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;
using Words = std::vector<std::string>;

constexpr const char* kTrainingToml = R"(
name = "small"

[vision]
num_layers = 2
hidden = 64
num_heads = 4
intermediate = 128
qkv_bias = true

[speech]
modality = "audio"
num_layers = 1
hidden = 32
num_heads = 2
intermediate = 48

[llm]
num_layers = 3
hidden = 96
num_heads = 6
num_kv_heads = 2
intermediate = 192
vocab_size = 264
)";

ModelSpec training_model() {
  return model_from_json(parse_toml(kTrainingToml, "small.toml"), "small.toml");
}

// Every parameter by its name.
std::map<std::string, ParameterSpec> all_parameters(const ModelSpec& model) {
  std::map<std::string, ParameterSpec> result;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      for (const ParameterSpec& parameter : parameters_of(model, module, layer)) {
        result[parameter.name] = parameter;
      }
    }
  }
  return result;
}

Words trained(const ModelSpec& model) {
  Words names;
  for (const auto& [name, parameter] : all_parameters(model)) {
    if (parameter.trainable) {
      names.push_back(name);
    }
  }
  return names;
}

Words frozen_by(const Words& words) {
  ModelSpec model = training_model();
  freeze_modules(model, words, "freeze");
  Words names;
  for (const auto& [name, parameter] : all_parameters(model)) {
    if (!parameter.trainable) {
      names.push_back(name);
    }
  }
  return names;
}

LoraSpec lora(const Words& targets, const Words& train = {}) {
  return {.rank = 4, .alpha = 8.0, .targets = targets, .train = train};
}

TEST(FreezeModules, TakesModulesAndProjectors) {
  const auto frozen = [](const Words& words) {
    ModelSpec model = training_model();
    freeze_modules(model, words, "freeze");
    std::string flags;
    for (const EncoderSpec& encoder : model.encoders) {
      flags += encoder.frozen ? "f" : "t";
      flags += encoder.projector_frozen ? "f" : "t";
    }
    return flags + (model.llm.frozen ? "f" : "t");
  };
  EXPECT_EQ(frozen({}), "ttttt");
  EXPECT_EQ(frozen({"vision"}), "ftttt");
  EXPECT_EQ(frozen({"vision.projector"}), "tfttt");
  EXPECT_EQ(frozen({"projector"}), "tftft");
  EXPECT_EQ(frozen({"speech", "llm", "speech"}), "ttftf");
}

TEST(FreezeModules, KeepsWhatTheFileFreezes) {
  ModelSpec model = training_model();
  model.encoders[1].frozen = true;
  freeze_modules(model, Words{"vision"}, "freeze");
  EXPECT_TRUE(model.encoders[0].frozen);
  EXPECT_TRUE(model.encoders[1].frozen);
}

TEST(FreezeModules, TakesPatternsOverNames) {
  EXPECT_EQ(frozen_by({"lm_head"}), Words{"lm_head.weight"});
  EXPECT_EQ(frozen_by({"model.layers.[02].mlp.up_proj"}),
            (Words{"model.layers.0.mlp.up_proj.weight", "model.layers.2.mlp.up_proj.weight"}));
  EXPECT_EQ(frozen_by({"visual.blocks.1.attn.*"}),
            (Words{"visual.blocks.1.attn.proj.weight",
                   "visual.blocks.1.attn.qkv.bias",
                   "visual.blocks.1.attn.qkv.weight"}));
  EXPECT_EQ(frozen_by({"qkv.bias"}),
            (Words{"visual.blocks.0.attn.qkv.bias", "visual.blocks.1.attn.qkv.bias"}));
  EXPECT_EQ(frozen_by({"llm.*norm"}),
            (Words{"model.layers.0.input_layernorm.weight",
                   "model.layers.0.post_attention_layernorm.weight",
                   "model.layers.1.input_layernorm.weight",
                   "model.layers.1.post_attention_layernorm.weight",
                   "model.layers.2.input_layernorm.weight",
                   "model.layers.2.post_attention_layernorm.weight",
                   "model.norm.weight"}));
  EXPECT_EQ(frozen_by({"vision.projector.*"}), frozen_by({"vision.projector"}));
}

TEST(FreezeModules, LeavesLayersOfWhichAPartIsTrained) {
  ModelSpec model = training_model();
  freeze_modules(model, Words{"visual.blocks.0.*", "model.layers.1.*_proj"}, "freeze");
  EXPECT_TRUE(layer_trainable(model, 0, 0));
  EXPECT_FALSE(layer_trainable(model, 0, 1));
  EXPECT_TRUE(layer_trainable(model, 0, 2));
  EXPECT_TRUE(layer_trainable(model, 2, 2));  // its norms
  const LayerCounts counts = count_parameters(model, 2, 2);
  EXPECT_EQ(counts.trained, 2 * 96);
  EXPECT_EQ(counts.trained_matrices, 0);
  EXPECT_EQ(counts.all - counts.trained, counts.matrices);
}

TEST(FreezeModules, RefusesWhatFitsNothing) {
  const auto message = [&](const std::string& word) {
    ModelSpec model = training_model();
    return error_of<InvalidInput>([&] { freeze_modules(model, Words{word}, "--freeze"); });
  };
  const std::string fits_nothing = "is no module and fits no parameter";
  EXPECT_EQ(message("visoin"), "--freeze: 'visoin' " + fits_nothing + ", did you mean 'vision'?");
  EXPECT_EQ(message("vision.projectors"),
            "--freeze: 'vision.projectors' " + fits_nothing + ", did you mean 'vision.projector'?");
  EXPECT_EQ(message("q_prj"), "--freeze: 'q_prj' " + fits_nothing + ", did you mean 'q_proj'?");
  EXPECT_TRUE(message("everything")
                  .starts_with("--freeze: 'everything' " + fits_nothing +
                               "; allowed: llm, projector, speech, speech.projector"));
}

TEST(AddLora, GivesMatricesAdaptersAndFreezesTheRest) {
  ModelSpec model = training_model();
  add_lora(model, lora({"q_proj", "llm.*.down_proj"}), "lora");
  const auto all = all_parameters(model);
  for (const auto& [name, parameter] : all) {
    EXPECT_EQ(parameter.trainable, is_adapter_name(name)) << name;
  }
  EXPECT_EQ(trained(model).size(), 12U);  // A and B of two matrices in three layers
  EXPECT_EQ(all.at("model.layers.1.self_attn.q_proj.lora_A.weight").shape,
            (std::vector<std::int64_t>{4, 96}));
  EXPECT_EQ(all.at("model.layers.1.self_attn.q_proj.lora_B.weight").shape,
            (std::vector<std::int64_t>{96, 4}));
  EXPECT_EQ(all.at("model.layers.1.mlp.down_proj.lora_A.weight").shape,
            (std::vector<std::int64_t>{4, 192}));
  EXPECT_FALSE(layer_trainable(model, 0, 1));
  EXPECT_TRUE(layer_trainable(model, 2, 1));
  EXPECT_FALSE(layer_trainable(model, 2, 0));
  EXPECT_TRUE(any_trainable(model, 2));
  EXPECT_FALSE(any_trainable(model, 0));
}

TEST(AddLora, ShardsAdaptersAsTheirMatrices) {
  ModelSpec model = training_model();
  add_lora(model, lora({"*"}), "lora");
  const auto all = all_parameters(model);
  EXPECT_TRUE(all.at("model.layers.0.self_attn.q_proj.lora_A.weight").split.whole());
  EXPECT_EQ(all.at("model.layers.0.self_attn.q_proj.lora_B.weight").split, kByOutputs);
  EXPECT_EQ(all.at("model.layers.0.self_attn.o_proj.lora_A.weight").split, kByInputs);
  EXPECT_TRUE(all.at("model.layers.0.self_attn.o_proj.lora_B.weight").split.whole());
  EXPECT_EQ(all.at("visual.blocks.0.attn.qkv.lora_B.weight").split, (ParameterSplit{0, 3}));
  // Everything that is linear, and nothing else.
  for (const auto& [name, parameter] : all) {
    const std::string weight = ".weight";
    const std::string matrix = name.substr(0, name.size() - weight.size());
    const bool linear = parameter.role == ParameterRole::kLinear ||
                        parameter.role == ParameterRole::kResidualLinear;
    const bool kernel =
        name.find("patch_embed") != std::string::npos || name.find(".conv") != std::string::npos;
    EXPECT_EQ(all.contains(matrix + kLoraA), linear && !kernel) << name;
  }
}

TEST(AddLora, LeavesAloneWhatIsFrozenByNameOrTrainedItself) {
  ModelSpec model = training_model();
  freeze_modules(model, Words{"vision", "model.layers.0.*"}, "freeze");
  add_lora(model, lora({"*"}, {"projector", "model.norm", "model.layers.2.mlp.up_proj"}), "lora");
  const auto all = all_parameters(model);
  EXPECT_FALSE(all.contains("visual.blocks.0.attn.qkv.lora_A.weight"));
  EXPECT_FALSE(all.contains("model.layers.0.mlp.up_proj.lora_A.weight"));
  EXPECT_FALSE(all.contains("model.layers.2.mlp.up_proj.lora_A.weight"));
  EXPECT_FALSE(all.contains("visual.merger.mlp.0.lora_A.weight"));
  EXPECT_TRUE(all.contains("speech.blocks.0.attn.qkv.lora_A.weight"));
  EXPECT_TRUE(all.at("visual.merger.mlp.0.weight").trainable);
  EXPECT_TRUE(all.at("visual.merger.mlp.0.bias").trainable);
  EXPECT_TRUE(all.at("model.norm.weight").trainable);
  EXPECT_TRUE(all.at("model.layers.2.mlp.up_proj.weight").trainable);
  EXPECT_FALSE(all.at("model.layers.2.mlp.down_proj.weight").trainable);
  EXPECT_FALSE(all.at("visual.blocks.0.norm1.weight").trainable);
}

TEST(AddLora, RefusesWhatCannotBe) {
  const auto message = [](LoraSpec spec, const Words& freeze = {}) {
    ModelSpec model = training_model();
    freeze_modules(model, freeze, "freeze");
    return error_of<InvalidInput>([&] { add_lora(model, spec, "lora"); });
  };
  LoraSpec spec = lora({"q_proj"});
  spec.rank = 0;
  EXPECT_EQ(message(spec), "lora.rank: 0 given; at least 1 is needed");
  spec.rank = 97;
  EXPECT_EQ(message(spec),
            "lora.rank: 97 given; 'model.layers.0.self_attn.q_proj' is 96 x 96, which allows up to "
            "96");
  spec.rank = 4;
  spec.alpha = 0;
  EXPECT_EQ(message(spec), "lora.alpha: 0 given; allowed: above 0, up to 1000000");
  EXPECT_EQ(message(lora({})),
            "lora.targets: no pattern given; at least one is needed, such as \"q_proj\"");
  EXPECT_EQ(message(lora({"q_proj", "q_proj"})), "lora.targets: 'q_proj' is there twice");
  EXPECT_EQ(message(lora({"q_prj"})),
            "lora.targets: 'q_prj' fits no linear layer, did you mean 'q_proj'?");
  EXPECT_EQ(message(lora({"q_proj", "input_layernorm"})),
            "lora.targets: 'input_layernorm' fits 'model.layers.0.input_layernorm', which is no "
            "linear layer; adapters are for those alone");
  EXPECT_EQ(message(lora({"embed_tokens"})),
            "lora.targets: 'embed_tokens' fits 'model.embed_tokens', which is no linear layer; "
            "adapters are for those alone");
  EXPECT_EQ(message(lora({"conv1"})),
            "lora.targets: 'conv1' fits 'speech.conv1', which is no linear layer; adapters are for "
            "those alone");
  EXPECT_EQ(message(lora({"q_proj"}), {"llm"}),
            "lora.targets: 'q_proj' fits only matrices that are frozen by name or in lora.train, "
            "such as 'model.layers.0.self_attn.q_proj'; these have no adapter");
  EXPECT_EQ(message(lora({"q_proj"}, {"projectr"})),
            "lora.train: 'projectr' is no module and fits no parameter, did you mean 'projector'?");
  EXPECT_EQ(message(lora({"q_proj"}, {"vision"}), {"vision"}),
            "lora.train: 'vision' fits only what is frozen");
}

TEST(Training, ReadsBackFromTheModelsDescription) {
  ModelSpec model = training_model();
  const std::string plain = shape_digest(model);
  freeze_modules(model, Words{"vision", "*norm*"}, "freeze");
  add_lora(model, lora({"q_proj", "speech.*"}, {"vision.projector"}), "lora");
  const ModelSpec again = model_from_json(to_json(model), "again");
  EXPECT_EQ(digest(again), digest(model));
  EXPECT_EQ(trained(again), trained(model));
  EXPECT_EQ(again.llm.lora, model.llm.lora);
  EXPECT_NE(digest(without_lora(model)), digest(model));
  EXPECT_EQ(shape_digest(model), plain);  // one profile for all of them
  Json document = to_json(model);
  document["llm"]["lora"]["rank"] = -1;
  EXPECT_EQ(error_of<InvalidInput>([&] { model_from_json(document, "m"); }),
            "m: llm.lora.rank: -1 given; at least 1 is needed");
  document["llm"]["lora"]["ranks"] = 1;
  EXPECT_EQ(error_of<InvalidInput>([&] { model_from_json(document, "m"); }),
            "m: llm.lora.ranks: unknown key, did you mean 'rank'?");
}

TEST(ParseLora, TakesRankAndTargets) {
  const LoraSpec spec = parse_lora("8:q_proj,llm.*.mlp.*", "--lora");
  EXPECT_EQ(spec.rank, 8);
  EXPECT_EQ(spec.alpha, 8.0);
  EXPECT_EQ(spec.targets, (Words{"q_proj", "llm.*.mlp.*"}));
  for (const char* text : {"8", "q_proj", "x:q_proj", "8x:q_proj", ""}) {
    EXPECT_EQ(error_of<InvalidInput>([&] { parse_lora(text, "--lora"); }),
              std::string("--lora: '") + text +
                  "' given; needed is RANK:TARGET,TARGET, such as 8:q_proj,v_proj");
  }
}

}  // namespace
}  // namespace entrain
