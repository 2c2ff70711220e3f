// Qwen3-VL, dense: a vision encoder with rotations and resized learned positions, DeepStack, and
// Qwen3 with interleaved M-RoPE.
//
// Source  arXiv 2511.21631 and the model's code in transformers.
#include <cmath>

#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"
#include "entrain/core/spec/parameters.h"

namespace entrain {
namespace {

EncoderSpec read_qwen3_vision(HfConfig config, const LlmSpec& llm) {
  EncoderSpec vision;
  vision.patch_size = 16;  // the class's default
  read_qwen_vision(config, vision);
  vision.num_layers = config.optional("depth", 27);
  vision.hidden = config.optional("hidden_size", 1152);
  vision.num_heads = config.optional("num_heads", 16);
  vision.intermediate = config.optional("intermediate_size", 4304);
  vision.activation = read_activation(config, "hidden_act", Activation::kGeluTanh);
  // In the code: norms, the patch embedding's bias, the plain MLP.
  vision.norm = NormKind::kLayer;
  vision.patch_bias = true;
  vision.gated_mlp = false;
  const int positions = config.optional("num_position_embeddings", 2304);
  vision.table_side = static_cast<int>(std::lround(std::sqrt(positions)));
  if (vision.table_side * vision.table_side != positions) {
    config.fail("num_position_embeddings",
                std::to_string(positions) + " given; a square is needed");
  }
  vision.table_interpolated = true;
  vision.deepstack_layers = {8, 16, 24};  // the class's default
  if (config.find("deepstack_visual_indexes") != nullptr) {
    vision.deepstack_layers = config.list<int>("deepstack_visual_indexes");
  }
  vision.min_pixels = std::int64_t{256} * 256;  // the processor's defaults
  vision.max_pixels = std::int64_t{4096} * 4096;
  if (vision.temporal_patch_size == 2) {
    vision.video.sampling = VideoSpec::Sampling::kSpread;
  }
  vision.video.min_pixels = std::int64_t{128} * 32 * 32;
  vision.video.max_pixels = std::int64_t{768} * 32 * 32;
  vision.video.shared_pixels = true;
  config.expect("out_hidden_size", llm.hidden);
  config.finish();
  return vision;
}

HfModel read_qwen3_vl(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  HfConfig text = config.object("text_config");
  llm.head_dim = 128;  // the class's defaults
  llm.rope_theta = 5e5;
  llm.qk_norm = true;
  llm.mrope_interleaved = true;
  read_text_config(text, llm);
  llm.qkv_bias = llm.output_bias = text.optional("attention_bias", false);
  text.finish();
  llm.tie_word_embeddings = config.optional("tie_word_embeddings", llm.tie_word_embeddings);
  if (llm.mrope_sections.empty()) {
    llm.mrope_sections = {24, 20, 20};
  }
  const EncoderSpec vision = read_qwen3_vision(config.object("vision_config"), llm);
  llm.deepstack = feature_levels(vision) - 1;
  result.model.encoders = {vision};
  result.image_text = read_qwen_image_text(config);
  // Every temporal patch has a grid of its own, behind its time.
  MediaText video = read_qwen_video_text(config);
  video.written = video.mark;
  video.tile = "<{seconds} seconds><|vision_start|>{features}<|vision_end|>";
  video.single = video.tile;
  result.video_text = video;
  config.harmless({"vision_start_token_id", "vision_end_token_id"});
  config.finish();
  result.shapes["visual.patch_embed.proj.weight"] = qwen_patch_kernel_shape(vision);
  HfModel::Spelling spelling;
  spelling.prefixes = {{"visual.", "model.visual."}, {"model.", "model.language_model."}};
  spelling.parts = {{".positions.", ".pos_embed."},
                    {".merger.ln_q.", ".merger.norm."},
                    {".deepstack.", ".deepstack_merger_list."},
                    {".mlp.0.", ".linear_fc1."},
                    {".mlp.2.", ".linear_fc2."},
                    {".mlp.up_proj.", ".mlp.linear_fc1."},
                    {".mlp.down_proj.", ".mlp.linear_fc2."}};
  result.spellings = {spelling};
  return result;
}

}  // namespace

Family qwen3_vl_family() {
  return {"Qwen3-VL", {"Qwen3VLForConditionalGeneration"}, {"qwen3_vl"}, read_qwen3_vl};
}

}  // namespace entrain
