// Families that are known for costs alone, and configs without architectures.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/spec/training.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/hf_folders.h"

namespace entrain {
namespace {

using oracle::expect_refused;
using oracle::tiny_decoder_config;

std::int64_t num_parameters(const ModelSpec& model) {
  std::int64_t sum = 0;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      sum += layer_parameters(model, module, layer);
    }
  }
  return sum - (model.llm.tie_word_embeddings
                    ? std::int64_t{model.llm.vocab_size} * model.llm.hidden
                    : 0);
}

// Of google/gemma-3-4b-it, which leaves out whatever is the class's default.
Json gemma3_config() {
  return {{"architectures", {"Gemma3ForConditionalGeneration"}},
          {"boi_token_index", 255999},
          {"eoi_token_index", 256000},
          {"eos_token_id", {1, 106}},
          {"image_token_index", 262144},
          {"initializer_range", 0.02},
          {"mm_tokens_per_image", 256},
          {"model_type", "gemma3"},
          {"text_config",
           {{"hidden_size", 2560},
            {"intermediate_size", 10240},
            {"model_type", "gemma3_text"},
            {"num_hidden_layers", 34},
            {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
            {"sliding_window", 1024}}},
          {"vision_config",
           {{"hidden_size", 1152},
            {"image_size", 896},
            {"intermediate_size", 4304},
            {"model_type", "siglip_vision_model"},
            {"num_attention_heads", 16},
            {"num_hidden_layers", 27},
            {"patch_size", 14},
            {"vision_use_head", false}}}};
}

// Numbers of parameters are those of the classes on torch's meta device (tests/parity/sizes.py).
TEST(Families, KnowGemma3ForCosts) {
  const ModelSpec model = hf_model_from_json(gemma3_config(), "config.json").model;
  EXPECT_EQ(num_parameters(model), 4'300'079'472);
  const EncoderSpec& vision = model.encoders.front();
  EXPECT_EQ(image_side(vision), 896);
  EXPECT_EQ(vision.merge_size, 4);
  EXPECT_FALSE(vision.gated_mlp);
  const LlmSpec& llm = model.llm;
  EXPECT_TRUE(llm.gated_mlp && llm.qk_norm && llm.post_norm && llm.tie_word_embeddings);
  EXPECT_EQ(llm.head_dim, 256);
  EXPECT_EQ(llm.full_attention_layers, (std::vector<int>{5, 11, 17, 23, 29}));
  EXPECT_EQ(layer_kind(model, 1, 1), LayerKind::kWindowedTransformer);
  EXPECT_EQ(layer_kind(model, 1, 6), LayerKind::kDecoder);
  SampleSizes sizes;
  sizes.prompt_tokens = 2000;
  sizes.response_tokens = 0;
  sizes.images = {{3000, 17}};
  const SampleWork work = sample_work(model, sizes);
  EXPECT_EQ(work.segments.front().front().tokens, 4096);
  EXPECT_EQ(work.llm_tokens, 2256);
  EXPECT_EQ(work.llm_attention_pairs, 2256 * 2256 / 2 + 256 * 256 / 2);
  EXPECT_EQ(work.llm_window_pairs, work.llm_attention_pairs - (2256 - 1024) * (2256 - 1024) / 2);
  expect_refused([&] { check_trainable(model, "run.toml"); },
                 {"run.toml", "Gemma 3", "costs alone", "llm.sliding_window"});
  // What is written is read alike.
  EXPECT_EQ(digest(model_from_json(to_json(model), "model")), digest(model));
}

TEST(Families, KnowGemma3TextsForCosts) {
  // google/gemma-3-1b-it
  Json config = {{"architectures", {"Gemma3ForCausalLM"}},
                 {"attention_bias", false},
                 {"attn_logit_softcapping", nullptr},
                 {"cache_implementation", "hybrid"},
                 {"final_logit_softcapping", nullptr},
                 {"head_dim", 256},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"hidden_size", 1152},
                 {"intermediate_size", 6912},
                 {"max_position_embeddings", 32768},
                 {"model_type", "gemma3_text"},
                 {"num_attention_heads", 4},
                 {"num_hidden_layers", 26},
                 {"num_key_value_heads", 1},
                 {"query_pre_attn_scalar", 256},
                 {"rope_local_base_freq", 10000},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 1000000},
                 {"sliding_window", 512},
                 {"sliding_window_pattern", 6},
                 {"vocab_size", 262144}};
  const ModelSpec model = hf_model_from_json(config, "config.json").model;
  EXPECT_EQ(num_parameters(model), 999'885'952);
  // As transformers 5 writes it.
  config.erase("architectures");
  config.erase("sliding_window_pattern");
  config.erase("rope_theta");
  config["_sliding_window_pattern"] = 6;
  for (int layer = 1; layer <= 26; ++layer) {
    config["layer_types"].push_back(layer % 6 == 0 ? "full_attention" : "sliding_attention");
  }
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                               {"sliding_attention", {{"rope_type", "default"}}}};
  EXPECT_EQ(digest(hf_model_from_json(config, "config.json").model), digest(model));
}

// Of openai/whisper-large-v3, without lists of tokens.
Json whisper_config() {
  return {{"architectures", {"WhisperForConditionalGeneration"}},
          {"activation_function", "gelu"},
          {"d_model", 1280},
          {"decoder_attention_heads", 20},
          {"decoder_ffn_dim", 5120},
          {"decoder_layers", 32},
          {"dropout", 0.0},
          {"encoder_attention_heads", 20},
          {"encoder_ffn_dim", 5120},
          {"encoder_layers", 32},
          {"is_encoder_decoder", true},
          {"max_source_positions", 1500},
          {"max_target_positions", 448},
          {"model_type", "whisper"},
          {"num_hidden_layers", 32},
          {"num_mel_bins", 128},
          {"scale_embedding", false},
          {"vocab_size", 51866}};
}

TEST(Families, KnowWhisperForCosts) {
  const ModelSpec model = hf_model_from_json(whisper_config(), "config.json").model;
  EXPECT_EQ(num_parameters(model), 1'543'490'560);
  EXPECT_EQ(num_parameters(
                hf_model_from_json({{"architectures", {"WhisperForConditionalGeneration"}}}, "tiny")
                    .model),
            37'760'640);
  SampleSizes sizes;
  sizes.prompt_tokens = 4;
  sizes.response_tokens = 100;
  sizes.audio_seconds = {7.3};
  const SampleWork work = sample_work(model, sizes);
  EXPECT_EQ(work.segments.front().front().tokens, 1500);
  EXPECT_EQ(work.llm_tokens, 104);
  EXPECT_EQ(work.llm_attention_pairs, 104 * 104 / 2 + 1500 * (104 + 1280));
  expect_refused([&] { check_trainable(model, "run.toml"); },
                 {"Whisper", "costs alone", "llm.cross_attention"});
  EXPECT_EQ(digest(model_from_json(to_json(model), "model")), digest(model));
}

struct Spoilt {
  std::function<void(Json& config)> spoil;
  std::vector<std::string> said;
};

void expect_each_refused(const Json& good, const std::vector<Spoilt>& cases) {
  for (const Spoilt& bad : cases) {
    Json config = good;
    bad.spoil(config);
    expect_refused([&] { hf_model_from_json(config, "config.json"); }, bad.said);
  }
}

TEST(Families, RefuseGemma3sAndWhispersTheyCannotRepresent) {
  expect_each_refused(
      gemma3_config(),
      {{[](Json& c) { c["mm_tokens_per_image"] = 255; }, {"mm_tokens_per_image", "255", "64"}},
       {[](Json& c) { c["vision_config"]["model_type"] = "clip_vision_model"; },
        {"vision_config.model_type"}},
       {[](Json& c) { c["text_config"]["attn_logit_softcapping"] = 50.0; },
        {"attn_logit_softcapping"}},
       {[](Json& c) { c["text_config"]["use_bidirectional_attention"] = true; },
        {"use_bidirectional_attention"}},
       {[](Json& c) { c["text_config"]["layer_types"] = Json(34, "chunked_attention"); },
        {"layer_types", "chunked_attention"}},
       {[](Json& c) { c["text_config"]["num_experts"] = 8; }, {"text_config.num_experts"}}});
  expect_each_refused(
      whisper_config(),
      {{[](Json& c) { c["dropout"] = 0.1; }, {"dropout", "0.1"}},
       {[](Json& c) { c["apply_spec_augment"] = true; }, {"apply_spec_augment"}},
       {[](Json& c) { c["decoder_attention_heads"] = 3; }, {"decoder_attention_heads"}},
       {[](Json& c) { c["experts"] = 8; }, {"config.json: experts"}}});
}

TEST(Families, AreFoundByModelTypeWithoutArchitectures) {
  for (const auto& [architecture, type] : {std::pair("LlamaForCausalLM", "llama"),
                                           std::pair("Qwen2ForCausalLM", "qwen2"),
                                           std::pair("Qwen3ForCausalLM", "qwen3"),
                                           std::pair("MistralForCausalLM", "mistral")}) {
    Json config = tiny_decoder_config(architecture, {{"model_type", type}});
    const HfModel named = hf_model_from_json(config, "config.json");
    config.erase("architectures");
    const HfModel typed = hf_model_from_json(config, "config.json");
    EXPECT_EQ(typed.family, named.family);
    EXPECT_EQ(digest(typed.model), digest(named.model));
    config["model_type"] = "mixtral";
    expect_refused([&] { hf_model_from_json(config, "config.json"); },
                   {"model_type [mixtral]", "known:", type});
  }
  for (const Family& family : families()) {
    EXPECT_EQ(family.model_types.size(), family.architectures.size()) << family.name;
  }
}

}  // namespace
}  // namespace entrain
