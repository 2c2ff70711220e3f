// LLaVA 1.5 and its like: CLIP or SigLIP, two matrices, and Llama, Qwen or Mistral. LLaVA-NeXT and
// LLaVA-OneVision are the same with images of any resolution.
//
// Source  arXiv 2310.03744, arXiv 2408.03326 and the models' code in transformers.
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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
    config.fail("model_type",
                fmt::format("'{}' given; allowed: clip_vision_model, siglip_vision_model", type));
  }
  read_vit_config(config, vision, 224);
  config.finish();
  vision.merge_size = 1;
  return vision;
}

// Layers after the one whose output is taken are kept in the files, but do not run.
void take_feature_layer(HfConfig& config, HfModel& result, EncoderSpec& vision, int usual) {
  const int layers = vision.num_layers;
  const int given = config.optional("vision_feature_layer", usual);
  const int taken = given < 0 ? layers + 1 + given : given;
  if (taken < 1 || taken > layers) {
    config.fail("vision_feature_layer", fmt::format("{} given for {} layers", given, layers));
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

HfModel::Spelling llava_spelling(const HfRoots& roots, const std::string& vision_tower) {
  const std::string tower = roots.root + vision_tower;
  const std::string projector = roots.root + "multi_modal_projector.";
  HfModel::Spelling result;
  result.prefixes = {{"visual.patch_embed.proj.", tower + "embeddings.patch_embedding."},
                     {"visual.class_token.weight", tower + "embeddings.class_embedding"},
                     {"visual.positions.", tower + "embeddings.position_embedding."},
                     {"visual.embedding_norm.", tower + "pre_layrnorm."},
                     {"visual.blocks.", tower + "encoder.layers."},
                     {"visual.merger.mlp.0.", projector + "linear_1."},
                     {"visual.merger.mlp.2.", projector + "linear_2."},
                     {"visual.merger.newline.weight", roots.root + "image_newline"},
                     {"model.", roots.llm},
                     {"lm_head.", roots.head}};
  result.parts = vit_parts();
  return result;
}

// All but the keys of a family of its own. `feature_layer`: the class's default.
HfModel read_parts(HfConfig& config, int feature_layer) {
  HfModel result;
  EncoderSpec vision = read_clip_or_siglip(config.object("vision_config"));
  take_feature_layer(config, result, vision, feature_layer);
  LlmSpec& llm = result.model.llm;
  llm = read_text_model(config.object("text_config"));
  ProjectorSpec& projector = vision.projector;
  projector.norm_tokens = false;
  projector.intermediate = llm.hidden;
  projector.activation = read_activation(config, "projector_hidden_act", Activation::kGelu);
  projector.bias = config.optional("multimodal_projector_bias", true);
  result.image_text = {.token = "<image>",
                       .token_id = read_token_id(config, {"image_token_index", "image_token_id"})};
  config.harmless({"image_seq_length",
                   "ignore_index",
                   "pad_token_id",
                   "bos_token_id",
                   "eos_token_id",
                   "vocab_size",
                   "use_cache",
                   "initializer_range"});
  result.model.encoders = {vision};
  result.shapes["visual.patch_embed.proj.weight"] = patch_kernel_shape(vision);
  result.shapes["visual.class_token.weight"] = {vision.hidden};
  result.shapes["visual.merger.newline.weight"] = {llm.hidden};
  result.spellings.clear();
  for (const HfRoots& roots : kHfRoots) {
    for (const char* tower : {"vision_tower.vision_model.", "vision_tower."}) {
      result.spellings.push_back(llava_spelling(roots, tower));
    }
  }
  return result;
}

HfModel read_llava(HfConfig config) {
  HfModel result = read_parts(config, -2);
  read_tied(config, result.model.llm);
  config.finish();
  return result;
}

// Images on canvases of the tiles that the encoder takes.
void read_any_resolution(HfConfig& config, HfModel& result, std::vector<std::array<int, 2>> usual) {
  EncoderSpec& vision = result.model.encoders.front();
  TilingSpec& tiling = vision.tiling;
  tiling.kind = result.tiling = TilingSpec::Kind::kAnyResolution;
  tiling.canvases = config.find("image_grid_pinpoints") == nullptr
                        ? std::move(usual)
                        : read_canvases(config, image_side(vision));
  config.expect("use_image_newline_parameter", true);
  vision.center_crop = false;
  vision.pixel_mean = kClipMean;
  vision.pixel_deviation = kClipDeviation;
}

HfModel read_llava_next(HfConfig config) {
  HfModel result = read_parts(config, -2);
  read_tied(config, result.model.llm);
  read_any_resolution(config, result, {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}});
  config.finish();
  return result;
}

HfModel read_llava_onevision(HfConfig config) {
  HfModel result = read_parts(config, -1);
  LlmSpec& llm = result.model.llm;
  llm.tie_word_embeddings |= config.optional("tie_word_embeddings", false);
  std::vector<std::array<int, 2>> canvases;
  for (int rows = 1; rows <= 6; ++rows) {
    for (int columns = 1; columns <= 6; ++columns) {
      canvases.push_back({rows, columns});
    }
  }
  read_any_resolution(config, result, canvases);
  TilingSpec& tiling = result.model.encoders.front().tiling;
  tiling.single_image = true;
  const std::string most = config.optional("vision_aspect_ratio", std::string("anyres_max_9"));
  constexpr std::string_view kLimit = "anyres_max_";
  const char* end = most.data() + most.size();
  if (!most.starts_with(kLimit) ||
      std::from_chars(most.data() + kLimit.size(), end, tiling.feature_tiles).ptr != end ||
      tiling.feature_tiles < 1) {
    config.fail("vision_aspect_ratio",
                fmt::format("'{}' given; allowed: anyres_max_N, N >= 1", most));
  }
  // Of videos, which are not read.
  config.harmless({"video_token_index", "video_token_id"});
  config.finish();
  return result;
}

}  // namespace

std::vector<std::array<int, 2>> read_canvases(HfConfig& config, int side) {
  std::vector<std::array<int, 2>> canvases;
  for (const auto& [canvas, place] : config.array("image_grid_pinpoints")) {
    std::array<int, 2> sides = {};
    for (std::size_t i = 0;
         canvas->is_array() && canvas->size() == sides.size() && i < sides.size();
         ++i) {
      sides[i] = value_as<int>((*canvas)[i], place);
    }
    if (sides[0] < side || sides[1] < side || sides[0] % side != 0 || sides[1] % side != 0) {
      throw InvalidInput(
          fmt::format("{}: {} given; allowed: [height, width] in multiples of {}, "
                      "the pixels of the encoder's images",
                      place,
                      canvas->dump(),
                      side));
    }
    canvases.push_back({sides[0] / side, sides[1] / side});
  }
  if (canvases.empty()) {
    config.fail("image_grid_pinpoints", "[] given; one or more [height, width] are needed");
  }
  return canvases;
}

Family llava_family() {
  return {"LLaVA", {"LlavaForConditionalGeneration"}, {"llava"}, read_llava};
}
Family llava_next_family() {
  return {"LLaVA-NeXT", {"LlavaNextForConditionalGeneration"}, {"llava_next"}, read_llava_next};
}
Family llava_onevision_family() {
  return {"LLaVA-OneVision",
          {"LlavaOnevisionForConditionalGeneration"},
          {"llava_onevision"},
          read_llava_onevision};
}

}  // namespace entrain
