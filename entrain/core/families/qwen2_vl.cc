// Qwen2-VL: a vision encoder with LayerNorm, a plain MLP and rotations, and Qwen2 with M-RoPE.
//
// Source  arXiv 2409.12191 and the model's code in transformers.
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"

namespace entrain {
namespace {

int read_mlp_width(HfConfig& config, int hidden) {
  const int ratio = config.optional("mlp_ratio", 4);
  const std::int64_t width = std::int64_t{hidden} * ratio;
  if (width < 1 || width > std::numeric_limits<int>::max()) {
    config.fail("mlp_ratio", fmt::format("{} given for embed_dim {}", ratio, hidden));
  }
  return static_cast<int>(width);
}

// The encoder's width is `embed_dim`; `hidden_size` is that of its features.
EncoderSpec read_qwen2_vision(HfConfig config, const LlmSpec& llm) {
  EncoderSpec vision;
  read_qwen_vision(config, vision);
  vision.num_layers = config.optional("depth", 32);
  vision.hidden = config.optional("embed_dim", 1280);
  vision.num_heads = config.optional("num_heads", 16);
  vision.intermediate = read_mlp_width(config, vision.hidden);
  vision.activation = read_activation(config, "hidden_act", Activation::kQuickGelu);
  vision.norm = NormKind::kLayer;  // in the code, as is the plain MLP
  vision.gated_mlp = false;
  vision.pixel_mean = kClipMean;
  vision.pixel_deviation = kClipDeviation;
  config.expect("hidden_size", llm.hidden);
  config.finish();
  return vision;
}

HfModel read_qwen2_vl(HfConfig config) {
  return read_qwen2_vision_language(
      std::move(config),
      read_qwen2_vision,
      {{".mlp.up_proj.", ".mlp.fc1."}, {".mlp.down_proj.", ".mlp.fc2."}});
}

}  // namespace

Family qwen2_vl_family() {
  return {"Qwen2-VL", {"Qwen2VLForConditionalGeneration"}, {"qwen2_vl"}, read_qwen2_vl};
}

}  // namespace entrain
