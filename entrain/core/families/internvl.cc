// InternVL 2.5 and 3 as transformers has them: a vision transformer with LayerScale, blocks of
// patches merged by pixel shuffle, LayerNorm and two matrices, and Qwen or Llama.
//
// Source  arXiv 2412.05271, arXiv 2504.10479 and the model's code in transformers.
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

EncoderSpec read_internvit(HfConfig config) {
  EncoderSpec vision;
  vision.num_layers = 24;
  vision.hidden = 1024;
  vision.num_heads = 16;
  vision.intermediate = 4096;
  vision.norm_epsilon = 1e-6;
  vision.activation = Activation::kGelu;
  vision.patch_size = 14;
  vision.pixel_mean = {0.485, 0.456, 0.406};  // ImageNet's
  vision.pixel_deviation = {0.229, 0.224, 0.225};
  vision.class_token = vision.patch_bias = vision.layer_scale = true;
  read_vit_config(config, vision, 448);
  vision.qkv_bias = config.optional("attention_bias", false);
  config.expect("norm_type", "layer_norm");
  config.expect("use_qk_norm", false);
  config.expect("use_mask_token", false);
  config.expect("use_absolute_position_embeddings", true);
  config.expect("use_mean_pooling", true);  // else there is a norm at the end
  config.expect("hidden_dropout_prob", 0.0);
  config.expect("projection_dropout", 0.0);
  config.harmless({"layer_scale_init_value"});
  config.finish();
  return vision;
}

HfModel read_internvl(HfConfig config) {
  HfModel result;
  EncoderSpec vision = read_internvit(config.object("vision_config"));
  const auto ratio = config.optional("downsample_ratio", 0.5);
  vision.merge_size = static_cast<int>(std::lround(1.0 / ratio));
  if (vision.merge_size < 1 || std::abs(vision.merge_size * ratio - 1.0) > 1e-9) {
    config.fail("downsample_ratio", fmt::format("{} given; allowed: 1 / n", ratio));
  }
  config.expect("vision_feature_layer", -1);
  config.expect("vision_feature_select_strategy", "default");
  LlmSpec& llm = result.model.llm;
  llm = read_text_model(config.object("text_config"));
  read_tied(config, llm);
  ProjectorSpec& projector = vision.projector;
  projector.norm_tokens = false;
  projector.norm_merged = true;
  projector.norm_epsilon = 1e-5;  // torch's default
  projector.intermediate = llm.hidden;
  projector.activation = read_activation(config, "projector_hidden_act", Activation::kGelu);
  result.image_text = {.token = "<IMG_CONTEXT>",
                       .token_id = read_token_id(config, {"image_token_id"}),
                       .single = "<img>{features}</img>",
                       .before = "<img>",
                       .after = "</img>"};
  config.harmless({"image_seq_length", "use_cache"});
  config.finish();
  result.model.encoders = {vision};
  result.tiling = TilingSpec::Kind::kBestCanvas;
  const std::int64_t positions = std::int64_t{vision.table_side} * vision.table_side + 1;
  result.shapes["visual.patch_embed.proj.weight"] = patch_kernel_shape(vision);
  result.shapes["visual.class_token.weight"] = {1, 1, vision.hidden};
  result.shapes["visual.positions.weight"] = {1, positions, vision.hidden};
  result.spellings.clear();
  for (const HfRoots& roots : kHfRoots) {
    const std::string tower = roots.root + "vision_tower.";
    const std::string bridge = roots.root + "multi_modal_projector.";
    HfModel::Spelling spelling;
    spelling.prefixes = {
        {"visual.patch_embed.proj.", tower + "embeddings.patch_embeddings.projection."},
        {"visual.class_token.weight", tower + "embeddings.cls_token"},
        {"visual.positions.weight", tower + "embeddings.position_embeddings"},
        {"visual.blocks.", tower + "encoder.layer."},
        {"visual.merger.norm.", bridge + "layer_norm."},
        {"visual.merger.mlp.0.", bridge + "linear_1."},
        {"visual.merger.mlp.2.", bridge + "linear_2."},
        {"model.", roots.llm},
        {"lm_head.", roots.head}};
    spelling.parts = {{".norm1.", ".layernorm_before."},
                      {".norm2.", ".layernorm_after."},
                      {".attn.q_proj.", ".attention.q_proj."},
                      {".attn.k_proj.", ".attention.k_proj."},
                      {".attn.v_proj.", ".attention.v_proj."},
                      {".attn.proj.", ".attention.projection_layer."},
                      {".scale1.weight", ".lambda_1"},
                      {".scale2.weight", ".lambda_2"},
                      {".mlp.up_proj.", ".mlp.fc1."},
                      {".mlp.down_proj.", ".mlp.fc2."}};
    result.spellings.push_back(spelling);
  }
  return result;
}

}  // namespace

Family internvl_family() {
  return {"InternVL", {"InternVLForConditionalGeneration"}, {"internvl"}, read_internvl};
}

}  // namespace entrain
