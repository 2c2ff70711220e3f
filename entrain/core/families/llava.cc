// LLaVA 1.5 and its like: CLIP or SigLIP, two matrices, and Llama, Qwen or Mistral.
//
// Source  arXiv 2310.03744 and the model's code in transformers.
#include <fmt/format.h>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"

namespace entrain {
namespace {

EncoderSpec read_clip_or_siglip(HfConfig config) {
  EncoderSpec vision;
  const auto type = config.required<std::string>("model_type");
  vision.num_layers = 12;
  vision.hidden = 768;
  vision.num_heads = 12;
  vision.intermediate = 3072;
  if (type == "clip_vision_model") {
    vision.norm_epsilon = 1e-5;
    vision.activation = Activation::kQuickGelu;
    vision.patch_size = 32;
    vision.class_token = vision.embedding_norm = vision.center_crop = true;
    vision.pixel_mean = kClipMean;
    vision.pixel_deviation = kClipDeviation;
  } else if (type == "siglip_vision_model") {
    vision.norm_epsilon = 1e-6;
    vision.activation = Activation::kGeluTanh;
    vision.patch_size = 16;
    vision.patch_bias = true;
  } else {
    config.reader().fail(
        "model_type",
        fmt::format("'{}' given; allowed: clip_vision_model, siglip_vision_model", type));
  }
  read_vit_config(config, vision, 224);
  config.finish();
  vision.merge_size = 1;
  return vision;
}

// Layers after the one whose output is taken are kept in the files, but do not run.
void take_feature_layer(HfConfig& config, HfModel& result, EncoderSpec& vision) {
  const int layers = vision.num_layers;
  const int given = config.optional("vision_feature_layer", -2);
  const int taken = given < 0 ? layers + 1 + given : given;
  if (taken < 1 || taken > layers) {
    config.reader().fail("vision_feature_layer",
                         fmt::format("{} given for {} layers", given, layers));
  }
  vision.num_layers = taken;
  result.no_parameters = {".post_layernorm.",
                          "vision_tower.head.",
                          "vision_model.head.",
                          ".position_ids",
                          ".rotary_emb.inv_freq"};
  for (int layer = taken; layer < layers; ++layer) {
    result.no_parameters.push_back(fmt::format(".encoder.layers.{}.", layer));
  }
  // What is taken of it: patches alone.
  config.expect("vision_feature_select_strategy", vision.class_token ? "default" : "full");
}

// `tower`, `projector`, `llm`, `head`: beginnings of names.
HfModel::Spelling llava_spelling(const std::string& tower,
                                 const std::string& projector,
                                 const std::string& llm,
                                 const std::string& head) {
  HfModel::Spelling result;
  result.prefixes = {{"visual.patch_embed.proj.", tower + "embeddings.patch_embedding."},
                     {"visual.class_token.weight", tower + "embeddings.class_embedding"},
                     {"visual.positions.", tower + "embeddings.position_embedding."},
                     {"visual.embedding_norm.", tower + "pre_layrnorm."},
                     {"visual.blocks.", tower + "encoder.layers."},
                     {"visual.merger.mlp.0.", projector + "linear_1."},
                     {"visual.merger.mlp.2.", projector + "linear_2."},
                     {"model.", llm},
                     {"lm_head.", head}};
  result.parts = vit_parts();
  return result;
}

HfModel read_llava(HfConfig config) {
  HfModel result;
  EncoderSpec vision = read_clip_or_siglip(config.object("vision_config"));
  take_feature_layer(config, result, vision);
  LlmSpec& llm = result.model.llm;
  llm = read_text_model(config.object("text_config"));
  read_tied(config, llm);
  ProjectorSpec& projector = vision.projector;
  projector.norm_tokens = false;
  projector.intermediate = llm.hidden;
  projector.activation = read_activation(config, "projector_hidden_act", Activation::kGelu);
  projector.bias = config.optional("multimodal_projector_bias", true);
  result.image_text = {.token = "<image>",
                       .token_id = read_token_id(config, {"image_token_index", "image_token_id"})};
  config.harmless({"architectures",
                   "model_type",
                   "dtype",
                   "torch_dtype",
                   "transformers_version",
                   "_name_or_path",
                   "image_seq_length",
                   "ignore_index",
                   "pad_token_id",
                   "bos_token_id",
                   "eos_token_id",
                   "vocab_size",
                   "use_cache",
                   "initializer_range"});
  config.finish();
  result.model.encoders = {vision};
  result.shapes["visual.patch_embed.proj.weight"] = patch_kernel_shape(vision);
  result.shapes["visual.class_token.weight"] = {vision.hidden};
  const std::string projector_name = "multi_modal_projector.";
  result.spellings = {
      llava_spelling("vision_tower.vision_model.",
                     projector_name,
                     "language_model.model.",
                     "language_model.lm_head."),
      llava_spelling(
          "vision_tower.", projector_name, "language_model.model.", "language_model.lm_head."),
      llava_spelling("model.vision_tower.vision_model.",
                     "model." + projector_name,
                     "model.language_model.",
                     "lm_head."),
      llava_spelling(
          "model.vision_tower.", "model." + projector_name, "model.language_model.", "lm_head.")};
  return result;
}

}  // namespace

Family llava_family() {
  return {"LLaVA", {"LlavaForConditionalGeneration"}, read_llava};
}

}  // namespace entrain
