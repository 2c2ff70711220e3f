// What the vision transformers of CLIP, SigLIP and their like have in common.
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {

Activation read_activation(HfConfig& config, const std::string& key, Activation fallback) {
  static constexpr std::array kNames = {std::pair("silu", Activation::kSilu),
                                        std::pair("gelu", Activation::kGelu),
                                        std::pair("gelu_pytorch_tanh", Activation::kGeluTanh),
                                        std::pair("gelu_new", Activation::kGeluTanh),
                                        std::pair("quick_gelu", Activation::kQuickGelu)};
  const Json* given = config.find(key);
  if (given == nullptr) {
    return fallback;
  }
  std::string allowed;
  for (const auto& [name, activation] : kNames) {
    if (*given == name) {
      return activation;
    }
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name);
  }
  config.fail(key, fmt::format("{} given; allowed: {}", given->dump(), allowed));
}

void read_vit_config(HfConfig& config, EncoderSpec& vision, int image_size) {
  vision.name = "vision";
  vision.num_layers = config.optional("num_hidden_layers", vision.num_layers);
  vision.hidden = config.optional("hidden_size", vision.hidden);
  vision.num_heads = config.optional("num_attention_heads", vision.num_heads);
  vision.intermediate = config.optional("intermediate_size", vision.intermediate);
  vision.norm = NormKind::kLayer;
  vision.norm_epsilon = config.optional("layer_norm_eps", vision.norm_epsilon);
  vision.packed_qkv = false;
  vision.qkv_bias = vision.output_bias = vision.mlp_bias = true;
  vision.gated_mlp = false;
  vision.activation = read_activation(config, "hidden_act", vision.activation);
  // One number, or two that are equal.
  const auto square = [&](const char* key, int fallback) {
    const Json* given = config.find(key);
    if (given == nullptr || !given->is_array()) {
      return config.optional(key, fallback);
    }
    const auto sides = config.array(key);
    if (sides.size() != 2 || *sides[0].first != *sides[1].first) {
      config.fail(key, fmt::format("{} given; a square is needed", given->dump()));
    }
    return value_as<int>(*sides[0].first, sides[0].second);
  };
  vision.patch_size = square("patch_size", vision.patch_size);
  const int side = square("image_size", image_size);
  if (vision.patch_size < 1 || side < vision.patch_size) {
    config.fail("image_size", fmt::format("{} given for patches of {}", side, vision.patch_size));
  }
  vision.table_side = side / vision.patch_size;
  vision.unused_pixels = side % vision.patch_size;
  config.expect("attention_dropout", 0.0);
  config.expect("num_channels", 3);
  // Of CLIP's pair with a text model, and of initial values.
  config.harmless({"initializer_factor",
                   "initializer_range",
                   "projection_dim",
                   "vocab_size",
                   "vision_use_head",
                   "use_base_siglip",
                   "tie_word_embeddings"});
}

std::vector<std::pair<std::string, std::string>> vit_parts() {
  return {{".norm1.", ".layer_norm1."},
          {".norm2.", ".layer_norm2."},
          {".attn.q_proj.", ".self_attn.q_proj."},
          {".attn.k_proj.", ".self_attn.k_proj."},
          {".attn.v_proj.", ".self_attn.v_proj."},
          {".attn.proj.", ".self_attn.out_proj."},
          {".mlp.up_proj.", ".mlp.fc1."},
          {".mlp.down_proj.", ".mlp.fc2."}};
}

std::vector<std::int64_t> patch_kernel_shape(const EncoderSpec& vision) {
  return {vision.hidden, 3, vision.patch_size, vision.patch_size};
}

}  // namespace entrain
