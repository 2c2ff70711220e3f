#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"

namespace entrain {
namespace {

using oracle::expect_refused;
using oracle::tiny_decoder_config;
using oracle::tiny_qwen2_vl_config;
using oracle::tiny_qwen3_vl_config;
using oracle::tiny_qwen_audio_config;
using oracle::tiny_qwen_config;

TEST(Families, ReadQwen2VlAsItsCodeComputes) {
  const ModelSpec model = hf_model_from_json(tiny_qwen2_vl_config(), "config.json").model;
  ASSERT_EQ(model.encoders.size(), 1U);
  const EncoderSpec& vision = model.encoders[0];
  EXPECT_EQ(vision.hidden, 16);
  EXPECT_EQ(vision.intermediate, 48);
  EXPECT_EQ(vision.norm, NormKind::kLayer);
  EXPECT_DOUBLE_EQ(vision.norm_epsilon, 1e-6);
  EXPECT_EQ(vision.activation, Activation::kQuickGelu);
  EXPECT_TRUE(vision.packed_qkv && vision.qkv_bias && vision.output_bias && vision.mlp_bias);
  EXPECT_FALSE(vision.gated_mlp || vision.patch_bias);
  EXPECT_EQ(vision.rotary, RotaryLayout::kHalves);
  EXPECT_EQ(vision.temporal_patch_size, 2);
  EXPECT_EQ(vision.window_size, 0);
  EXPECT_EQ(vision.projector, ProjectorSpec());
  EXPECT_DOUBLE_EQ(vision.pixel_mean[0], kClipMean[0]);
  EXPECT_TRUE(model.llm.qkv_bias);
  EXPECT_FALSE(model.llm.output_bias || model.llm.mlp_bias || model.llm.qk_norm);
  EXPECT_EQ(model.llm.mrope_sections, (std::vector<int>{2, 1, 1}));
  EXPECT_EQ(digest(model_from_json(to_json(model), "model.toml")), digest(model));
}

// The published config of Qwen2-VL-2B: keys of transformers 4, some of which no class has.
TEST(Families, ReadPublishedQwen2Vl) {
  const Json published = {{"architectures", {"Qwen2VLForConditionalGeneration"}},
                          {"attention_dropout", 0.0},
                          {"bos_token_id", 151643},
                          {"eos_token_id", 151645},
                          {"vision_start_token_id", 151652},
                          {"vision_end_token_id", 151653},
                          {"vision_token_id", 151654},
                          {"image_token_id", 151655},
                          {"video_token_id", 151656},
                          {"hidden_act", "silu"},
                          {"hidden_size", 1536},
                          {"initializer_range", 0.02},
                          {"intermediate_size", 8960},
                          {"max_position_embeddings", 32768},
                          {"max_window_layers", 28},
                          {"model_type", "qwen2_vl"},
                          {"num_attention_heads", 12},
                          {"num_hidden_layers", 28},
                          {"num_key_value_heads", 2},
                          {"rms_norm_eps", 1e-6},
                          {"rope_theta", 1e6},
                          {"sliding_window", 32768},
                          {"tie_word_embeddings", true},
                          {"torch_dtype", "bfloat16"},
                          {"transformers_version", "4.41.2"},
                          {"use_cache", true},
                          {"use_sliding_window", false},
                          {"vision_config",
                           {{"depth", 32},
                            {"embed_dim", 1280},
                            {"mlp_ratio", 4},
                            {"num_heads", 16},
                            {"in_chans", 3},
                            {"hidden_size", 1536},
                            {"patch_size", 14},
                            {"spatial_merge_size", 2},
                            {"spatial_patch_size", 14},
                            {"temporal_patch_size", 2}}},
                          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
                          {"vocab_size", 151936}};
  const ModelSpec model = hf_model_from_json(published, "config.json").model;
  EXPECT_TRUE(model.llm.tie_word_embeddings);
  std::int64_t parameters = 0;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      parameters += layer_parameters(model, module, layer);
    }
  }
  // 2.21 billion, and the tied table a second time.
  EXPECT_EQ(parameters, 2208985600 + std::int64_t{151936} * 1536);
}

TEST(Families, GiveAbsentKeysTheDefaultsOfQwen2Vl) {
  Json config = tiny_qwen2_vl_config();
  Json& text = config["text_config"];
  for (const char* key : {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps"}) {
    text.erase(key);
  }
  text["rope_parameters"].erase("rope_theta");
  text["num_attention_heads"] = 8;
  text["rope_parameters"]["mrope_section"] = {1, 1, 0};
  config["vision_config"] = Json::object();
  const ModelSpec model = hf_model_from_json(config, "config.json").model;
  EXPECT_EQ(model.llm.num_kv_heads, 8);
  EXPECT_EQ(model.llm.max_tokens, 32768);
  EXPECT_DOUBLE_EQ(model.llm.norm_epsilon, 1e-5);
  EXPECT_DOUBLE_EQ(model.llm.rope_theta, 1e6);
  const EncoderSpec& vision = model.encoders.at(0);
  EXPECT_EQ(vision.num_layers, 32);
  EXPECT_EQ(vision.hidden, 1280);
  EXPECT_EQ(vision.num_heads, 16);
  EXPECT_EQ(vision.intermediate, 5120);
  EXPECT_EQ(vision.activation, Activation::kQuickGelu);
  EXPECT_EQ(vision.patch_size, 14);
}

TEST(Families, ReadQwen25VlAsItsCodeComputes) {
  const ModelSpec model = hf_model_from_json(tiny_qwen_config(), "config.json").model;
  ASSERT_EQ(model.encoders.size(), 1U);
  const EncoderSpec& vision = model.encoders[0];
  EXPECT_EQ(vision.num_layers, 2);
  EXPECT_TRUE(vision.qkv_bias && vision.output_bias && vision.mlp_bias);
  EXPECT_EQ(vision.rotary, RotaryLayout::kHalves);
  EXPECT_EQ(vision.temporal_patch_size, 2);
  EXPECT_EQ(vision.window_size, 56);
  EXPECT_EQ(vision.full_attention_layers, std::vector<int>{1});
  EXPECT_TRUE(model.llm.qkv_bias);
  EXPECT_FALSE(model.llm.output_bias || model.llm.mlp_bias || model.llm.qk_norm);
  EXPECT_EQ(model.llm.mrope_sections, (std::vector<int>{2, 1, 1}));
  EXPECT_DOUBLE_EQ(model.llm.rope_theta, 1e6);
  EXPECT_DOUBLE_EQ(model.llm.norm_epsilon, 1e-6);
  // A description is written and read as a model file too.
  EXPECT_EQ(digest(model_from_json(to_json(model), "model.toml")), digest(model));
}

TEST(Families, ReadQwen3VlAsItsCodeComputes) {
  const ModelSpec model = hf_model_from_json(tiny_qwen3_vl_config(), "config.json").model;
  const EncoderSpec& vision = model.encoders.at(0);
  EXPECT_EQ(vision.norm, NormKind::kLayer);
  EXPECT_FALSE(vision.gated_mlp);
  EXPECT_EQ(vision.activation, Activation::kGeluTanh);
  EXPECT_EQ(vision.patch_size, 16);
  EXPECT_EQ(vision.table_side, 6);
  EXPECT_TRUE(vision.table_interpolated && vision.patch_bias && has_rotations(vision));
  EXPECT_EQ(vision.deepstack_layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(model.llm.deepstack, 2);
  EXPECT_TRUE(model.llm.mrope_interleaved && model.llm.qk_norm);
  EXPECT_FALSE(model.llm.qkv_bias);
  EXPECT_EQ(digest(model_from_json(to_json(model), "model.toml")), digest(model));
}

// Folders of transformers 4: the text model's keys beside vision_config, or in both places.
TEST(Families, ReadAllFormsOfAConfigAlike) {
  for (const Json& nested : {tiny_qwen2_vl_config(), tiny_qwen_config()}) {
    Json both = nested;
    both.update(nested["text_config"]);
    both["model_type"] = nested["model_type"];
    both["sliding_window"] = 4096;
    Json flat = both;
    flat.erase("text_config");
    flat["rope_theta"] = flat["rope_parameters"]["rope_theta"];
    flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}};
    flat.erase("rope_parameters");
    const std::string expected = digest(hf_model_from_json(nested, "nested").model);
    EXPECT_EQ(digest(hf_model_from_json(flat, "flat").model), expected);
    EXPECT_EQ(digest(hf_model_from_json(both, "both").model), expected);
    both["hidden_size"] = 64;
    expect_refused([&] { hf_model_from_json(both, "both"); }, {"both: hidden_size", "64", "32"});
  }
}

TEST(Families, TieQwensIfOneOfBothConfigsSaysSo) {
  for (Json config : {tiny_qwen2_vl_config(), tiny_qwen_config()}) {
    const auto tied = [&](const Json& outer, const Json& inner) {
      config["tie_word_embeddings"] = outer;
      config["text_config"]["tie_word_embeddings"] = inner;
      return hf_model_from_json(config, "config.json").model.llm.tie_word_embeddings;
    };
    EXPECT_TRUE(tied(false, true) && tied(true, false) && tied(nullptr, true));
    EXPECT_FALSE(tied(false, false) || tied(nullptr, nullptr));
  }
}

TEST(Families, ReadQwen2AudioAsItsCodeComputes) {
  const ModelSpec model = hf_model_from_json(tiny_qwen_audio_config(), "config.json").model;
  ASSERT_EQ(model.encoders.size(), 1U);
  const EncoderSpec& audio = model.encoders[0];
  EXPECT_EQ(audio.modality, Modality::kAudio);
  EXPECT_EQ(audio.mel_bands, 128);
  EXPECT_DOUBLE_EQ(audio.window_seconds, 0.4);
  EXPECT_EQ(audio.norm, NormKind::kLayer);
  EXPECT_DOUBLE_EQ(audio.norm_epsilon, 1e-5);
  EXPECT_EQ(audio.activation, Activation::kGelu);
  EXPECT_TRUE(audio.qkv_bias && audio.output_bias && audio.mlp_bias);
  EXPECT_FALSE(audio.key_bias || audio.packed_qkv || audio.gated_mlp || audio.pad_windows);
  EXPECT_TRUE(audio.masked_padding && audio.stored_positions && audio.projector.average);
  EXPECT_TRUE(model.llm.qkv_bias);
  EXPECT_EQ(digest(model_from_json(to_json(model), "model.toml")), digest(model));
}

// The published config of LLaVA-NeXT with Mistral, smaller in its text model.
Json next_config() {
  Json text = {{"model_type", "mistral"},
               {"hidden_size", 64},
               {"intermediate_size", 96},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"max_position_embeddings", 32768},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", 1e6},
               {"sliding_window", nullptr},
               {"vocab_size", 32064}};
  return {{"architectures", {"LlavaNextForConditionalGeneration"}},
          {"ignore_index", -100},
          {"image_grid_pinpoints", {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
          {"image_token_index", 32000},
          {"model_type", "llava_next"},
          {"projector_hidden_act", "gelu"},
          {"text_config", text},
          {"tie_word_embeddings", false},
          {"use_image_newline_parameter", true},
          {"vision_config",
           {{"hidden_size", 1024},
            {"image_size", 336},
            {"intermediate_size", 4096},
            {"model_type", "clip_vision_model"},
            {"num_attention_heads", 16},
            {"num_hidden_layers", 24},
            {"patch_size", 14},
            {"projection_dim", 768},
            {"vocab_size", 32000}}},
          {"vision_feature_layer", -2},
          {"vision_feature_select_strategy", "default"},
          {"vocab_size", 32064}};
}

// That of LLaVA-OneVision: 384 pixels are 27 patches of 14, and the text model ties its tables.
Json onevision_config() {
  Json config = next_config();
  config["architectures"] = {"LlavaOnevisionForConditionalGeneration"};
  config["image_grid_pinpoints"] = {{384, 384}, {384, 2304}, {768, 384}};
  config["video_token_index"] = 151647;
  config["vision_aspect_ratio"] = "anyres_max_9";
  config["vision_feature_layer"] = -1;
  config["vision_feature_select_strategy"] = "full";
  config["vision_config"] = {{"hidden_size", 1152},
                             {"image_size", 384},
                             {"intermediate_size", 4304},
                             {"model_type", "siglip_vision_model"},
                             {"num_attention_heads", 16},
                             {"num_hidden_layers", 26},
                             {"patch_size", 14},
                             {"vision_use_head", false}};
  config["text_config"]["model_type"] = "qwen2";
  config["text_config"]["tie_word_embeddings"] = true;
  return config;
}

TEST(Families, ReadLlavaNextAndOneVisionAsTheirCodeComputes) {
  const HfModel next = hf_model_from_json(next_config(), "config.json");
  const EncoderSpec& vision = next.model.encoders.at(0);
  EXPECT_EQ(next.tiling, TilingSpec::Kind::kAnyResolution);
  EXPECT_EQ(vision.tiling.canvases,
            (std::vector<std::array<int, 2>>{{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}}));
  EXPECT_EQ(vision.tiling.feature_tiles, 0);
  EXPECT_FALSE(vision.tiling.single_image || vision.center_crop);
  EXPECT_EQ(vision.num_layers, 23);
  EXPECT_EQ(image_side(vision), 336);
  EXPECT_EQ(next.shapes.at("visual.merger.newline.weight"), (std::vector<std::int64_t>{64}));
  Json short_form = next_config();
  short_form.erase("image_grid_pinpoints");
  EXPECT_EQ(digest(hf_model_from_json(short_form, "config.json").model), digest(next.model));

  const ModelSpec onevision = hf_model_from_json(onevision_config(), "config.json").model;
  const EncoderSpec& siglip = onevision.encoders.at(0);
  EXPECT_EQ(siglip.table_side, 27);
  EXPECT_EQ(siglip.unused_pixels, 6);
  EXPECT_EQ(siglip.num_layers, 26);
  EXPECT_EQ(siglip.tiling.canvases, (std::vector<std::array<int, 2>>{{1, 1}, {1, 6}, {2, 1}}));
  EXPECT_EQ(siglip.tiling.feature_tiles, 9);
  EXPECT_TRUE(siglip.tiling.single_image);
  EXPECT_TRUE(onevision.llm.tie_word_embeddings);
  EXPECT_EQ(digest(model_from_json(to_json(onevision), "model.toml")), digest(onevision));
}

TEST(Families, RefuseCanvasesTheyCannotRepresent) {
  for (const auto& [key, value, said] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"image_grid_pinpoints", {{336, 700}}, "image_grid_pinpoints[0]: [336,700] given"},
           {"image_grid_pinpoints", {{336, 336, 3}}, "[336,336,3] given"},
           {"image_grid_pinpoints", {{0, 336}}, "multiples of 336"},
           {"image_grid_pinpoints", Json::array(), "image_grid_pinpoints: [] given"},
           {"use_image_newline_parameter", false, "use_image_newline_parameter"},
           {"vision_aspect_ratio", "anyres_max_9", "vision_aspect_ratio"}}) {
    Json config = next_config();
    config[key] = value;
    expect_refused([&] { validate(hf_model_from_json(config, "c.json").model, "c.json"); },
                   {"c.json", said});
  }
  for (const char* limit : {"anyres", "anyres_max_", "anyres_max_0", "anyres_max_9x", "pad"}) {
    Json config = onevision_config();
    config["vision_aspect_ratio"] = limit;
    expect_refused([&] { hf_model_from_json(config, "c.json"); }, {"vision_aspect_ratio", limit});
  }
}

TEST(Families, SayHowTextsMarkMedia) {
  const HfModel qwen = hf_model_from_json(oracle::tiny_qwen_config(), "config.json");
  EXPECT_EQ(qwen.image_text.value().token_id, 262);
  EXPECT_NE(qwen.image_text->mark.find(qwen.image_text->token), std::string::npos);
  EXPECT_FALSE(qwen.audio_text.has_value());
  EXPECT_EQ(qwen.video_text.value().written, "<|video_pad|>");
  const HfModel qwen3 = hf_model_from_json(tiny_qwen3_vl_config(), "config.json");
  EXPECT_EQ(qwen3.video_text.value().written, "<|vision_start|><|video_pad|><|vision_end|>");
  const HfModel audio = hf_model_from_json(oracle::tiny_qwen_audio_config(), "config.json");
  EXPECT_EQ(audio.audio_text.value().token, "<|AUDIO|>");
  EXPECT_EQ(audio.audio_text->token_id, 262);
  EXPECT_FALSE(audio.image_text.has_value());
}

TEST(Families, ReadDecodersAsTheirCodeComputes) {
  const auto read = [](const char* architecture, const Json& more) {
    return hf_model_from_json(tiny_decoder_config(architecture, more), "config.json").model.llm;
  };
  EXPECT_TRUE(read("Qwen2ForCausalLM", {}).qkv_bias);
  EXPECT_FALSE(read("LlamaForCausalLM", {}).qkv_bias);
  const LlmSpec biased = read("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  const LlmSpec qwen3 = read("Qwen3ForCausalLM", {});
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(read("MistralForCausalLM", {{"sliding_window", 100}}).max_tokens, 100);
  const LlmSpec scaled = read("LlamaForCausalLM",
                              {{"rope_theta", 5e5},
                               {"rope_scaling",
                                {{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192}}}});
  EXPECT_EQ(scaled.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_DOUBLE_EQ(scaled.rope_theta, 5e5);
}

struct BadConfig {
  const char* what;
  std::function<void(Json& config)> spoil;
  std::vector<std::string> said;
};

void expect_all_refused(const Json& good, const std::vector<BadConfig>& cases) {
  hf_model_from_json(good, "config.json");
  for (const BadConfig& bad : cases) {
    SCOPED_TRACE(bad.what);
    Json config = good;
    bad.spoil(config);
    expect_refused([&] { hf_model_from_json(config, "config.json"); }, bad.said);
  }
}

// Everything that would be computed otherwise, or that nobody has read.
TEST(Families, RefuseDecodersTheyCannotRepresent) {
  expect_all_refused(
      tiny_decoder_config("LlamaForCausalLM", {}),
      {{"no architecture", [](Json& c) { c.erase("architectures"); }, {"architectures", "known:"}},
       {"another one",
        [](Json& c) { c["architectures"] = {"MixtralForCausalLM"}; },
        {"MixtralForCausalLM", "LlamaForCausalLM"}},
       {"an activation", [](Json& c) { c["hidden_act"] = "gelu"; }, {"hidden_act", "\"silu\""}},
       {"dropout", [](Json& c) { c["attention_dropout"] = 0.1; }, {"attention_dropout", "0.1"}},
       {"a key that nobody knows",
        [](Json& c) { c["logit_softcap"] = 30; },
        {"config.json: logit_softcap"}},
       {"experts", [](Json& c) { c["num_local_experts"] = 8; }, {"num_local_experts"}},
       {"other positions",
        [](Json& c) {
          c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
        },
        {"rope_scaling.rope_type", "'yarn'", "llama3"}},
       {"half of a scaling",
        [](Json& c) {
          c["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 4.0}};
        },
        {"rope_scaling.low_freq_factor"}},
       {"a key of the scaling",
        [](Json& c) {
          c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"beta", 1}};
        },
        {"rope_scaling.beta"}},
       {"partly rotated heads",
        [](Json& c) {
          c["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
        },
        {"partial_rotary_factor"}},
       {"quantized weights",
        [](Json& c) {
          c["quantization_config"] = {{"bits", 4}};
        },
        {"quantization_config"}},
       {"sharded training", [](Json& c) { c["pretraining_tp"] = 2; }, {"pretraining_tp", "2"}},
       {"cross-attention",
        [](Json& c) { c["add_cross_attention"] = true; },
        {"add_cross_attention"}},
       {"layers as a list", [](Json& c) { c["num_hidden_layers"] = {2}; }, {"num_hidden_layers"}},
       {"heads that do not divide",
        [](Json& c) { c["num_attention_heads"] = 3; },
        {"hidden_size", "3 heads"}},
       {"a number as text", [](Json& c) { c["vocab_size"] = "264"; }, {"vocab_size"}}});
}

TEST(Families, RefuseQwen2VlsTheyCannotRepresent) {
  expect_all_refused(
      tiny_qwen2_vl_config(),
      {{"no sections",
        [](Json& c) { c["text_config"]["rope_parameters"].erase("mrope_section"); },
        {"mrope_section"}},
       {"sliding windows",
        [](Json& c) { c["text_config"]["use_sliding_window"] = true; },
        {"use_sliding_window"}},
       {"features of another width",
        [](Json& c) { c["vision_config"]["hidden_size"] = 16; },
        {"vision_config.hidden_size", "16", "32"}},
       {"another activation",
        [](Json& c) { c["vision_config"]["hidden_act"] = "relu"; },
        {"hidden_act", "relu", "quick_gelu"}},
       {"a fraction of a ratio",
        [](Json& c) { c["vision_config"]["mlp_ratio"] = 2.5; },
        {"mlp_ratio", "2.5"}},
       {"a width that no tensor has",
        [](Json& c) { c["vision_config"]["mlp_ratio"] = 2147483647; },
        {"mlp_ratio", "2147483647"}},
       {"patches that are not square",
        [](Json& c) {
          c["vision_config"]["patch_size"] = {14, 7};
        },
        {"patch_size"}},
       {"patches of another size",
        [](Json& c) { c["vision_config"]["spatial_patch_size"] = 16; },
        {"spatial_patch_size", "16", "14"}},
       {"another rotation",
        [](Json& c) { c["vision_config"]["rope_parameters"]["rope_type"] = "golden"; },
        {"rope_type", "golden"}},
       {"windows of Qwen2.5-VL",
        [](Json& c) { c["vision_config"]["window_size"] = 112; },
        {"vision_config.window_size"}},
       {"grey images", [](Json& c) { c["vision_config"]["in_channels"] = 1; }, {"in_channels"}},
       {"quantized weights",
        [](Json& c) {
          c["quantization_config"] = {{"bits", 4}};
        },
        {"quantization_config"}},
       {"no vision", [](Json& c) { c.erase("vision_config"); }, {"vision_config"}}});
}

TEST(Families, RefuseQwensTheyCannotRepresent) {
  expect_all_refused(
      tiny_qwen_config(),
      {{"no sections",
        [](Json& c) { c["text_config"]["rope_parameters"].erase("mrope_section"); },
        {"mrope_section"}},
       {"sections of another head",
        [](Json& c) {
          c["text_config"]["rope_parameters"]["mrope_section"] = {2, 2, 2};
        },
        {"mrope_sections"}},
       {"interleaved sections",
        [](Json& c) { c["text_config"]["rope_parameters"]["mrope_interleaved"] = true; },
        {"mrope_interleaved"}},
       {"sliding windows",
        [](Json& c) { c["text_config"]["use_sliding_window"] = true; },
        {"use_sliding_window"}},
       {"one sliding layer",
        [](Json& c) {
          c["text_config"]["layer_types"] = {"full_attention", "sliding_attention"};
        },
        {"layer_types[1]", "sliding_attention"}},
       {"no vision", [](Json& c) { c.erase("vision_config"); }, {"vision_config"}},
       {"grey images", [](Json& c) { c["vision_config"]["in_channels"] = 1; }, {"in_channels"}},
       {"features of another width",
        [](Json& c) { c["vision_config"]["out_hidden_size"] = 99; },
        {"out_hidden_size", "99"}},
       {"three frames a patch",
        [](Json& c) { c["vision_config"]["temporal_patch_size"] = 3; },
        {"temporal_patch_size"}},
       {"windows that merge blocks cross",
        [](Json& c) { c["vision_config"]["window_size"] = 50; },
        {"window_size"}},
       {"DeepStack",
        [](Json& c) { c["vision_config"]["deepstack_visual_indexes"] = {1}; },
        {"deepstack_visual_indexes"}},
       {"another rotation",
        [](Json& c) {
          c["vision_config"]["rope_parameters"] = {{"rope_type", "golden"}};
        },
        {"rope_type"}}});
}

TEST(Families, RefuseQwen3VlsTheyCannotRepresent) {
  expect_all_refused(
      tiny_qwen3_vl_config(),
      {{"sections one after another",
        [](Json& c) { c["text_config"]["rope_parameters"]["mrope_interleaved"] = false; },
        {"mrope_interleaved", "true"}},
       {"a table that is no square",
        [](Json& c) { c["vision_config"]["num_position_embeddings"] = 35; },
        {"num_position_embeddings", "35"}},
       {"features of a layer that is not there",
        [](Json& c) { c["vision_config"]["deepstack_visual_indexes"] = {4}; },
        {"deepstack_layers", "4"}},
       {"more features than decoders",
        [](Json& c) {
          c["vision_config"]["deepstack_visual_indexes"] = {0, 1, 2};
        },
        {"deepstack", "3"}},
       {"features of another width",
        [](Json& c) { c["vision_config"]["out_hidden_size"] = 99; },
        {"out_hidden_size", "99"}},
       {"a key that nobody knows",
        [](Json& c) { c["vision_config"]["window_size"] = 112; },
        {"window_size"}}});
}

TEST(Families, RefuseQwen2AudiosTheyCannotRepresent) {
  expect_all_refused(
      tiny_qwen_audio_config(),
      {{"dropout", [](Json& c) { c["audio_config"]["dropout"] = 0.1; }, {"dropout", "0.1"}},
       {"layers left out",
        [](Json& c) { c["audio_config"]["encoder_layerdrop"] = 0.1; },
        {"audio_config.encoder_layerdrop"}},
       {"a scaled embedding",
        [](Json& c) { c["audio_config"]["scale_embedding"] = true; },
        {"scale_embedding"}},
       {"another activation",
        [](Json& c) { c["audio_config"]["activation_function"] = "relu"; },
        {"activation_function", "relu"}},
       {"another encoder",
        [](Json& c) { c["audio_config"]["model_type"] = "whisper"; },
        {"model_type", "whisper"}},
       {"a key that nobody has read",
        [](Json& c) { c["audio_config"]["n_window"] = 100; },
        {"audio_config.n_window"}},
       {"M-RoPE", [](Json& c) { c["text_config"]["use_mrope"] = true; }, {"use_mrope"}},
       {"another text model",
        [](Json& c) { c["text_config"]["model_type"] = "llama"; },
        {"text_config.model_type", "llama"}},
       {"a tied head",
        [](Json& c) { c["text_config"]["tie_word_embeddings"] = true; },
        {"tie_word_embeddings"}},
       {"no audio", [](Json& c) { c.erase("audio_config"); }, {"audio_config"}},
       {"heads that do not divide",
        [](Json& c) { c["audio_config"]["encoder_attention_heads"] = 3; },
        {"hidden", "num_heads 3"}}});
}

}  // namespace
}  // namespace entrain
