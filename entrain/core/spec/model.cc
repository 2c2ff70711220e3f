#include "entrain/core/spec/model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr const char* kLlmName = "llm";
constexpr std::array<std::string_view, 8> kLayerKindNames = {  // by LayerKind
    "patch_embedding",
    "audio_embedding",
    "encoder_transformer",
    "windowed_transformer",
    "projector",
    "token_embedding",
    "decoder",
    "output_head"};

const EncoderSpec& encoder_of(const ModelSpec& model, int module) {
  ENTRAIN_INVARIANT(module >= 0 && module < model.llm_module(),
                    fmt::format("module {} is not an encoder", module));
  return model.encoders[static_cast<std::size_t>(module)];
}

}  // namespace

std::string_view name_of(LayerKind kind) {
  return kLayerKindNames.at(static_cast<std::size_t>(kind));
}

std::span<const std::string_view> layer_kind_names() {
  return kLayerKindNames;
}

bool has_attention(LayerKind kind) {
  return kind == LayerKind::kEncoderTransformer || kind == LayerKind::kWindowedTransformer ||
         kind == LayerKind::kDecoder;
}

std::string_view name_of(Modality modality) {
  return modality == Modality::kVision ? "vision" : "audio";
}

int num_layers(const ModelSpec& model, int module) {
  return 2 + (module == model.llm_module() ? model.llm.num_layers
                                           : encoder_of(model, module).num_layers);
}

std::int64_t merged_tokens(const EncoderSpec& encoder) {
  return encoder.modality == Modality::kVision
             ? std::int64_t{encoder.merge_size} * encoder.merge_size
         : encoder.projector.num_matrices == 0 ? 1
                                               : 2;
}

std::int64_t patch_values(const EncoderSpec& encoder) {
  return std::int64_t{3} * encoder.temporal_patch_size * encoder.patch_size * encoder.patch_size;
}

int extra_tokens(const EncoderSpec& encoder) {
  return encoder.class_token ? 1 : 0;
}

std::int64_t merged_width(const EncoderSpec& encoder) {
  return encoder.projector.average ? encoder.hidden : merged_tokens(encoder) * encoder.hidden;
}

std::int64_t projector_width(const EncoderSpec& encoder) {
  return encoder.projector.intermediate > 0 ? encoder.projector.intermediate
                                            : merged_width(encoder);
}

std::int64_t output_width(const ModelSpec& model, int module, int layer) {
  if (module == model.llm_module()) {
    return std::int64_t{model.llm.hidden} * (1 + std::max(0, model.llm.deepstack - layer));
  }
  const EncoderSpec& encoder = encoder_of(model, module);
  if (layer > encoder.num_layers) {
    return std::int64_t{model.llm.hidden} * feature_levels(encoder);
  }
  const std::vector<int>& kept = encoder.deepstack_layers;
  return encoder.hidden *
         (1 + std::distance(kept.begin(), std::lower_bound(kept.begin(), kept.end(), layer)));
}

int feature_levels(const EncoderSpec& encoder) {
  return 1 + static_cast<int>(encoder.deepstack_layers.size());
}

ProjectorSpec projector_of_level(const ProjectorSpec& projector, int level) {
  ProjectorSpec result = projector;
  if (level > 0) {
    result.norm_tokens = false;
    result.norm_merged = true;
  }
  return result;
}

bool has_rotations(const EncoderSpec& encoder) {
  return encoder.modality == Modality::kVision &&
         (encoder.table_side == 0 || encoder.table_interpolated);
}

int image_side(const EncoderSpec& encoder) {
  return encoder.table_side * encoder.patch_size + encoder.unused_pixels;
}

bool has_one_size(const EncoderSpec& encoder) {
  return encoder.table_side > 0 && !encoder.table_interpolated;
}

bool attends_in_windows(const EncoderSpec& encoder, int layer) {
  const std::vector<int>& full = encoder.full_attention_layers;
  return encoder.window_size > 0 && !std::binary_search(full.begin(), full.end(), layer - 1);
}

bool attends_in_windows(const LlmSpec& llm, int layer) {
  const std::vector<int>& full = llm.full_attention_layers;
  return llm.sliding_window > 0 && !std::binary_search(full.begin(), full.end(), layer - 1);
}

LayerKind layer_kind(const ModelSpec& model, int module, int layer) {
  const int last = num_layers(model, module) - 1;
  ENTRAIN_INVARIANT(layer >= 0 && layer <= last,
                    fmt::format("layer {} of module {} does not exist", layer, module));
  if (module == model.llm_module()) {
    return layer == 0                             ? LayerKind::kTokenEmbedding
           : layer == last                        ? LayerKind::kOutputHead
           : attends_in_windows(model.llm, layer) ? LayerKind::kWindowedTransformer
                                                  : LayerKind::kDecoder;
  }
  const EncoderSpec& encoder = encoder_of(model, module);
  if (layer == 0) {
    return encoder.modality == Modality::kVision ? LayerKind::kPatchEmbedding
                                                 : LayerKind::kAudioEmbedding;
  }
  if (layer == last) {
    return LayerKind::kProjector;
  }
  return attends_in_windows(encoder, layer) ? LayerKind::kWindowedTransformer
                                            : LayerKind::kEncoderTransformer;
}

std::string module_name(const ModelSpec& model, int module) {
  return module == model.llm_module() ? kLlmName : encoder_of(model, module).name;
}

std::vector<std::string> module_names(const ModelSpec& model) {
  std::vector<std::string> names;
  for (int module = 0; module < model.num_modules(); ++module) {
    names.push_back(module_name(model, module));
  }
  return names;
}

std::string digest(const ModelSpec& model) {
  return digest_of(to_json(model).dump());
}

std::string shape_digest(const ModelSpec& model) {
  static const std::vector<std::string> kShapeKeys = {
      "modality",   "num_layers",       "hidden",         "num_heads",      "num_kv_heads",
      "head_dim",   "intermediate",     "patch_size",     "merge_size",     "temporal_patch_size",
      "table_side", "class_token",      "patch_bias",     "embedding_norm", "projector",
      "norm",       "separate_qkv",     "plain_mlp",      "activation",     "layer_scale",
      "qkv_bias",   "output_bias",      "mlp_bias",       "qk_norm",        "vocab_size",
      "deepstack",  "deepstack_layers", "key_bias",       "mel_bands",      "stored_positions",
      "post_norm",  "position_rows",    "cross_attention"};
  Json shape = Json::object();
  const Json document = to_json(model);
  for (const auto& [module, table] : document.items()) {
    if (!table.is_object()) {
      continue;
    }
    for (const std::string& key : kShapeKeys) {
      if (table.contains(key)) {
        shape[module][key] = table[key];
      }
    }
  }
  return digest_of(shape.dump());
}

}  // namespace entrain
