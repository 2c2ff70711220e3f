#include "entrain/core/spec/parameters.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

ModelSpec a_model() {
  ModelSpec model;
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 2;
  vision.hidden = 8;
  vision.num_heads = 2;
  vision.intermediate = 12;
  vision.patch_size = 2;
  model.encoders = {vision};
  model.llm.num_layers = 1;
  model.llm.hidden = 16;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 20;
  model.llm.vocab_size = 30;
  return model;
}

std::vector<std::string> names_of(const std::vector<ParameterSpec>& parameters) {
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(ParametersOf, ListABlocksPartsInTheOrderOfStages) {
  const ModelSpec model = a_model();
  EXPECT_EQ(names_of(parameters_of(model, 0, 2)),
            (std::vector<std::string>{"visual.blocks.1.norm1.weight",
                                      "visual.blocks.1.attn.qkv.weight",
                                      "visual.blocks.1.attn.proj.weight",
                                      "visual.blocks.1.norm2.weight",
                                      "visual.blocks.1.mlp.gate_proj.weight",
                                      "visual.blocks.1.mlp.up_proj.weight",
                                      "visual.blocks.1.mlp.down_proj.weight"}));
  const std::vector<ParameterSpec> decoder = parameters_of(model, 1, 1);
  EXPECT_EQ(decoder[2].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(decoder[2].shape, (std::vector<std::int64_t>{12, 16}));
}

TEST(ParametersOf, HaveBiasesAndNormsOfHeadsAfterWhatTheyBelongTo) {
  ModelSpec model = a_model();
  model.llm.qkv_bias = model.llm.output_bias = model.llm.mlp_bias = model.llm.qk_norm = true;
  const std::vector<ParameterSpec> decoder = parameters_of(model, 1, 1);
  EXPECT_EQ(names_of(decoder),
            (std::vector<std::string>{"model.layers.0.input_layernorm.weight",
                                      "model.layers.0.self_attn.q_proj.weight",
                                      "model.layers.0.self_attn.q_proj.bias",
                                      "model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.0.self_attn.k_proj.bias",
                                      "model.layers.0.self_attn.v_proj.weight",
                                      "model.layers.0.self_attn.v_proj.bias",
                                      "model.layers.0.self_attn.q_norm.weight",
                                      "model.layers.0.self_attn.k_norm.weight",
                                      "model.layers.0.self_attn.o_proj.weight",
                                      "model.layers.0.self_attn.o_proj.bias",
                                      "model.layers.0.post_attention_layernorm.weight",
                                      "model.layers.0.mlp.gate_proj.weight",
                                      "model.layers.0.mlp.gate_proj.bias",
                                      "model.layers.0.mlp.up_proj.weight",
                                      "model.layers.0.mlp.up_proj.bias",
                                      "model.layers.0.mlp.down_proj.weight",
                                      "model.layers.0.mlp.down_proj.bias"}));
  // A bias is sharded with the rows of its matrix; of partial sums one rank adds it.
  EXPECT_EQ(decoder[2].split, kByOutputs);
  EXPECT_TRUE(decoder[10].split.whole());
  EXPECT_EQ(count_parameters(model, 1, 1).replicated, 16 + 6 + 6 + 16 + 16 + 16);
}

// Whisper's: keys without bias, positions that are stored but not trained, tokens averaged.
TEST(ParametersOf, CountStoredPositionsAndKeysWithoutBias) {
  ModelSpec model = a_model();
  EncoderSpec& audio = model.encoders[0];
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  audio.mel_bands = 5;
  audio.packed_qkv = audio.key_bias = false;
  audio.qkv_bias = true;
  audio.window_seconds = 0.15;
  EXPECT_EQ(layer_parameters(model, 0, 0), 8 * 5 * 3 + 8 + 8 * 8 * 3 + 8);
  audio.stored_positions = true;
  const std::vector<ParameterSpec> embedding = parameters_of(model, 0, 0);
  EXPECT_EQ(embedding.back().name, "audio_tower.positions.weight");
  EXPECT_EQ(embedding.back().shape, (std::vector<std::int64_t>{8, 8}));
  EXPECT_TRUE(embedding.back().split.whole());
  const LayerCounts counts = count_parameters(model, 0, 0);
  EXPECT_EQ(counts.all - counts.trained, 8 * 8);
  EXPECT_EQ(count_parameters(model, 0, 1).trained, count_parameters(model, 0, 1).all);
  const std::vector<std::string> block = names_of(parameters_of(model, 0, 1));
  EXPECT_EQ(std::vector<std::string>(block.begin() + 1, block.begin() + 6),
            (std::vector<std::string>{"audio_tower.blocks.0.attn.q_proj.weight",
                                      "audio_tower.blocks.0.attn.q_proj.bias",
                                      "audio_tower.blocks.0.attn.k_proj.weight",
                                      "audio_tower.blocks.0.attn.v_proj.weight",
                                      "audio_tower.blocks.0.attn.v_proj.bias"}));
  audio.projector.average = true;
  audio.projector.num_matrices = 1;
  EXPECT_EQ(layer_parameters(model, 0, 3), 8 + 16 * 8 + 16);
}

TEST(ParametersOf, CountTwoFramesAPatchAndATiedTable) {
  ModelSpec model = a_model();
  model.encoders[0].temporal_patch_size = 2;
  EXPECT_EQ(layer_parameters(model, 0, 0), 8 * 3 * 2 * 2 * 2);
  model.llm.tie_word_embeddings = true;
  EXPECT_EQ(names_of(parameters_of(model, 1, 2)),
            (std::vector<std::string>{"model.norm.weight", kTokenTableName}));
  EXPECT_EQ(layer_parameters(model, 1, 2), 16 + 30 * 16);
}

}  // namespace
}  // namespace entrain
