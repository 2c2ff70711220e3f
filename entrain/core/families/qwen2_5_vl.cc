// Qwen2.5-VL: a vision encoder with windows, RMSNorm and biases, and Qwen2 with M-RoPE.
//
// Source  arXiv 2502.13923 and the model's code in transformers.
#include <fmt/format.h>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"
#include "entrain/core/spec/parameters.h"

namespace entrain {
namespace {

EncoderSpec read_vision(HfConfig config, const LlmSpec& llm) {
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = config.required<int>("depth");
  vision.hidden = config.required<int>("hidden_size");
  vision.num_heads = config.required<int>("num_heads");
  vision.intermediate = config.required<int>("intermediate_size");
  vision.norm_epsilon = 1e-6;  // in the code, as are the biases
  vision.qkv_bias = vision.output_bias = vision.mlp_bias = true;
  vision.rotary = RotaryLayout::kHalves;
  vision.pixel_mean = kClipMean;
  vision.pixel_deviation = kClipDeviation;
  vision.max_pixels = std::int64_t{28} * 28 * 16384;  // the processor's default
  if (config.reader().find("rope_parameters") != nullptr) {
    HfConfig rope = config.object("rope_parameters");
    vision.rope_theta = rope.optional("rope_theta", vision.rope_theta);
    rope.expect("rope_type", "axial");
    rope.finish();
  }
  vision.patch_size = config.required<int>("patch_size");
  vision.merge_size = config.required<int>("spatial_merge_size");
  vision.temporal_patch_size = config.optional("temporal_patch_size", 2);
  vision.window_size = config.required<int>("window_size");
  for (const auto& [layer, place] : config.reader().array("fullatt_block_indexes")) {
    vision.full_attention_layers.push_back(value_as<int>(*layer, place));
  }
  config.expect("hidden_act", "silu");
  config.expect("in_channels", 3);
  config.expect("in_chans", 3);
  config.expect("spatial_patch_size", vision.patch_size);
  config.expect("out_hidden_size", llm.hidden);
  // tokens_per_second: of videos, which cannot be trained yet.
  config.harmless({"model_type", "initializer_range", "tokens_per_second", "dtype", "torch_dtype"});
  config.finish();
  return vision;
}

// The text model's keys are in `text_config`, or in older folders beside `vision_config`.
void read_llm(HfConfig& config, LlmSpec& llm) {
  llm.qkv_bias = true;   // in the code of Qwen2, not in its config
  llm.rope_theta = 1e6;  // the class's default
  const bool nested = config.reader().find("text_config") != nullptr;
  if (!nested) {
    read_text_config(config, llm);
    expect_full_attention(config, llm);
    return;
  }
  HfConfig text = config.object("text_config");
  read_text_config(text, llm);
  expect_full_attention(text, llm);
  for (const char* id : {"image_token_id",
                         "video_token_id",
                         "vision_start_token_id",
                         "vision_end_token_id",
                         "vision_token_id"}) {
    text.harmless({id});
  }
  text.finish();
  llm.tie_word_embeddings = config.optional("tie_word_embeddings", llm.tie_word_embeddings);
  config.harmless({"architectures",
                   "model_type",
                   "dtype",
                   "torch_dtype",
                   "transformers_version",
                   "_name_or_path",
                   "use_cache",
                   "bos_token_id",
                   "eos_token_id",
                   "pad_token_id",
                   "initializer_range"});
}

HfModel read_qwen2_5_vl(HfConfig config) {
  HfModel result;
  LlmSpec& llm = result.model.llm;
  read_llm(config, llm);
  if (llm.mrope_sections.size() != 3) {
    config.reader().fail("rope_scaling.mrope_section", "missing; three numbers are needed");
  }
  const EncoderSpec vision = read_vision(config.object("vision_config"), llm);
  result.model.encoders = {vision};
  config.harmless({"image_token_id",
                   "video_token_id",
                   "vision_start_token_id",
                   "vision_end_token_id",
                   "vision_token_id"});
  config.finish();
  const std::int64_t side = vision.patch_size;
  result.shapes[parameter_prefix(vision) + ".patch_embed.proj.weight"] = {
      vision.hidden, 3, vision.temporal_patch_size, side, side};
  result.spellings = {{},  // visual.…, model.layers.…, lm_head.…
                      {{{"visual.", "model.visual."}, {"model.", "model.language_model."}}}};
  return result;
}

}  // namespace

Family qwen2_5_vl_family() {
  return {"Qwen2.5-VL", {"Qwen2_5_VLForConditionalGeneration"}, read_qwen2_5_vl};
}

}  // namespace entrain
