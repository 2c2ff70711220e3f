// Qwen2.5-VL: a vision encoder with windows, RMSNorm and biases, and Qwen2 with M-RoPE.
//
// Source  arXiv 2502.13923 and the model's code in transformers.
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"

namespace entrain {
namespace {

EncoderSpec read_qwen2_5_vision(HfConfig config, const LlmSpec& llm) {
  EncoderSpec vision;
  read_qwen_vision(config, vision);
  vision.num_layers = config.required<int>("depth");
  vision.hidden = config.required<int>("hidden_size");
  vision.num_heads = config.required<int>("num_heads");
  vision.intermediate = config.required<int>("intermediate_size");
  vision.pixel_mean = kClipMean;
  vision.pixel_deviation = kClipDeviation;
  vision.window_size = config.required<int>("window_size");
  vision.full_attention_layers = config.list<int>("fullatt_block_indexes");
  config.expect("hidden_act", "silu");
  config.expect("out_hidden_size", llm.hidden);
  if (vision.temporal_patch_size == 2) {
    vision.video.sampling = VideoSpec::Sampling::kStride;
  }
  vision.video.min_pixels = std::int64_t{128} * 28 * 28;  // the processor's defaults
  vision.video.max_pixels = std::int64_t{768} * 28 * 28;
  vision.video.tokens_per_second = config.optional("tokens_per_second", 4.0);
  config.finish();
  return vision;
}

HfModel read_qwen2_5_vl(HfConfig config) {
  return read_qwen2_vision_language(std::move(config), read_qwen2_5_vision, {});
}

}  // namespace

Family qwen2_5_vl_family() {
  return {"Qwen2.5-VL", {"Qwen2_5_VLForConditionalGeneration"}, {"qwen2_5_vl"}, read_qwen2_5_vl};
}

}  // namespace entrain
