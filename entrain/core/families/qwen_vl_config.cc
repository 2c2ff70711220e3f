// What Qwen2-VL, Qwen2.5-VL and Qwen3-VL have in common.
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/spec/parameters.h"

namespace entrain {
namespace {

// The defaults of both classes of text models.
LlmSpec default_qwen2_text() {
  LlmSpec llm;
  llm.num_layers = 80;
  llm.hidden = 8192;
  llm.num_heads = 64;
  llm.num_kv_heads = 8;
  llm.intermediate = 29568;
  llm.vocab_size = 152064;
  llm.norm_epsilon = 1e-5;
  llm.rope_theta = 1e6;
  llm.max_tokens = 32768;
  llm.qkv_bias = true;  // in the code of Qwen2, not in its config
  return llm;
}

void name_token_ids(HfConfig& config) {
  config.harmless({"image_token_id",
                   "video_token_id",
                   "vision_start_token_id",
                   "vision_end_token_id",
                   "vision_token_id"});
}

// transformers 4.52 and its like write the text model's keys beside `text_config` too.
void expect_repeated(HfConfig& config, const Json& text) {
  for (const char* key : {"attention_dropout",
                          "hidden_act",
                          "hidden_size",
                          "intermediate_size",
                          "layer_types",
                          "max_position_embeddings",
                          "num_attention_heads",
                          "num_hidden_layers",
                          "num_key_value_heads",
                          "rms_norm_eps",
                          "rope_parameters",
                          "rope_scaling",
                          "rope_theta",
                          "use_sliding_window",
                          "vocab_size"}) {
    config.expect(key, text.value(key, Json()));
  }
  config.harmless({"sliding_window", "max_window_layers"});
}

// The text model's keys are in `text_config`, or in older folders beside `vision_config`.
LlmSpec read_qwen2_text(HfConfig& config) {
  LlmSpec llm = default_qwen2_text();
  if (config.find("text_config") == nullptr) {
    read_text_config(config, llm);
    expect_full_attention(config, llm);
    return llm;
  }
  HfConfig text = config.object("text_config");
  read_text_config(text, llm);
  expect_full_attention(text, llm);
  name_token_ids(text);
  text.finish();
  expect_repeated(config, config.at("text_config"));
  // Folders of transformers 4 say it in text_config; the classes tie if one of both says so.
  llm.tie_word_embeddings =
      config.optional("tie_word_embeddings", false) || llm.tie_word_embeddings;
  config.harmless(
      {"use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range"});
  return llm;
}

}  // namespace

void read_qwen_vision(HfConfig& config, EncoderSpec& vision) {
  vision.name = "vision";
  vision.norm_epsilon = 1e-6;  // in the code, as are the biases
  vision.qkv_bias = vision.output_bias = vision.mlp_bias = true;
  vision.rotary = RotaryLayout::kHalves;
  if (config.find("rope_parameters") != nullptr) {
    HfConfig rope = config.object("rope_parameters");
    vision.rope_theta = rope.optional("rope_theta", vision.rope_theta);
    rope.expect("rope_type", "axial");
    rope.finish();
  }
  vision.patch_size = config.optional("patch_size", vision.patch_size);
  vision.merge_size = config.optional("spatial_merge_size", 2);
  vision.temporal_patch_size = config.optional("temporal_patch_size", 2);
  config.expect("in_channels", 3);
  config.expect("in_chans", 3);
  config.expect("spatial_patch_size", vision.patch_size);
  config.harmless({"initializer_range"});
}

std::vector<std::int64_t> qwen_patch_kernel_shape(const EncoderSpec& vision) {
  return {vision.hidden, 3, vision.temporal_patch_size, vision.patch_size, vision.patch_size};
}

MediaText read_qwen_image_text(HfConfig& config) {
  return {.token = "<|image_pad|>",
          .token_id = read_token_id(config, {"image_token_id"}),
          .mark = "<|vision_start|><|image_pad|><|vision_end|>"};
}

MediaText read_qwen_video_text(HfConfig& config) {
  return {.token = "<|video_pad|>",
          .token_id = read_token_id(config, {"video_token_id"}),
          .mark = "<|vision_start|><|video_pad|><|vision_end|>"};
}

HfModel read_qwen2_vision_language(HfConfig config,
                                   EncoderSpec (*read_vision)(HfConfig config, const LlmSpec& llm),
                                   const std::vector<std::pair<std::string, std::string>>& parts) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  llm = read_qwen2_text(config);
  if (llm.mrope_sections.size() != 3) {
    config.refuse("rope_scaling.mrope_section", "missing; three numbers are needed");
  }
  const EncoderSpec vision = read_vision(config.object("vision_config"), llm);
  result.model.encoders = {vision};
  result.image_text = read_qwen_image_text(config);
  result.video_text = read_qwen_video_text(config);
  name_token_ids(config);
  config.finish();
  result.shapes[parameter_prefix(vision) + ".patch_embed.proj.weight"] =
      qwen_patch_kernel_shape(vision);
  const std::vector<std::pair<std::string, std::string>> newer = {
      {"visual.", "model.visual."}, {"model.", "model.language_model."}};
  result.spellings = {{{}, parts},  // visual.…, model.layers.…, lm_head.…
                      {newer, parts}};
  return result;
}

}  // namespace entrain
