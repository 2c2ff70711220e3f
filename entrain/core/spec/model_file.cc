// Model files: reading and writing of a model's description.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

constexpr std::array<const char*, 2> kRotaryLayouts = {"spans", "halves"};  // by RotaryLayout
constexpr std::array<const char*, 2> kNorms = {"rms", "layer"};             // NormKind
constexpr std::array<const char*, 4> kActivations = {
    "silu", "gelu", "gelu_tanh", "quick_gelu"};                                      // Activation
constexpr std::array<const char*, 3> kFilters = {"bicubic", "lanczos", "bilinear"};  // ResizeFilter
constexpr std::array<const char*, 4> kTilings = {
    "none", "longest_edge", "best_canvas", "any_resolution"};  // TilingSpec::Kind
constexpr std::array<const char*, 4> kSamplings = {"rate", "all", "stride", "spread"};  // Sampling
constexpr std::array<const char*, 3> kScalings = {"none", "linear", "llama3"};  // RopeScaling::Kind

// The enumerator whose name stands under `key`.
template <class Enum, std::size_t kCount>
Enum one_of(ObjectReader& reader,
            const char* key,
            const std::array<const char*, kCount>& names,
            Enum fallback) {
  if (!reader.has(key)) {
    return fallback;
  }
  const auto given = reader.required<std::string>(key);
  const auto found = std::find(names.begin(), names.end(), given);
  if (found == names.end()) {
    reader.fail(key, fmt::format("'{}' given; allowed: {}", given, fmt::join(names, ", ")));
  }
  return static_cast<Enum>(found - names.begin());
}

// Only what differs is written, so that digests of models without it stay what they were.
template <class T>
void put_unusual(Json& document, const char* key, const T& value, const T& usual) {
  if (value != usual) {
    document[key] = value;
  }
}

template <class Enum, std::size_t kCount>
void put_unusual(Json& document,
                 const char* key,
                 Enum value,
                 Enum usual,
                 const std::array<const char*, kCount>& names) {
  if (value != usual) {
    document[key] = names[static_cast<std::size_t>(value)];
  }
}

// Likewise of what is usually false, 0 or empty.
template <class T>
void put_set(Json& document, const char* key, const T& value) {
  put_unusual(document, key, value, T{});
}

void read_block(ObjectReader& reader, BlockSpec& block) {
  block.num_layers = reader.required<int>("num_layers");
  block.hidden = reader.required<int>("hidden");
  block.num_heads = reader.required<int>("num_heads");
  block.intermediate = reader.required<int>("intermediate");
  block.norm = one_of(reader, "norm", kNorms, block.norm);
  block.norm_epsilon = reader.optional("norm_epsilon", block.norm_epsilon);
  block.gated_mlp = !reader.optional("plain_mlp", !block.gated_mlp);
  block.activation = one_of(reader, "activation", kActivations, block.activation);
  block.layer_scale = reader.optional("layer_scale", block.layer_scale);
  block.post_norm = reader.optional("post_norm", block.post_norm);
  block.qkv_bias = reader.optional("qkv_bias", block.qkv_bias);
  block.key_bias = reader.optional("key_bias", block.key_bias);
  block.output_bias = reader.optional("output_bias", block.output_bias);
  block.mlp_bias = reader.optional("mlp_bias", block.mlp_bias);
  block.frozen = reader.optional("frozen", block.frozen);
  block.frozen_parameters = reader.list<std::string>("frozen_parameters");
  if (reader.has("lora")) {
    ObjectReader lora = reader.object("lora");
    block.lora = read_lora(lora);
    lora.finish();
  }
}

RopeScaling read_scaling(ObjectReader reader) {
  RopeScaling scaling;
  scaling.kind = one_of(reader, "kind", kScalings, RopeScaling::Kind::kNone);
  scaling.factor = reader.required<double>("factor");
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    scaling.low_freq_factor = reader.required<double>("low_freq_factor");
    scaling.high_freq_factor = reader.required<double>("high_freq_factor");
    scaling.original_max_position = reader.required<std::int64_t>("original_max_position");
  }
  reader.finish();
  return scaling;
}

void read_channels(ObjectReader& reader, const char* key, std::array<double, 3>& channels) {
  const auto values = reader.array(key);
  if (values.empty()) {
    return;
  }
  if (values.size() != channels.size()) {
    reader.fail(key, fmt::format("{} numbers given; three are needed", values.size()));
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    channels[i] = value_as<double>(*values[i].first, values[i].second);
  }
}

ProjectorSpec read_projector(ObjectReader reader) {
  ProjectorSpec projector;
  projector.norm_tokens = reader.optional("norm_tokens", projector.norm_tokens);
  projector.norm_merged = reader.optional("norm_merged", projector.norm_merged);
  projector.norm_epsilon = reader.optional("norm_epsilon", projector.norm_epsilon);
  projector.rms_merged = reader.optional("rms_merged", projector.rms_merged);
  projector.average = reader.optional("average", projector.average);
  projector.num_matrices = reader.optional("num_matrices", projector.num_matrices);
  projector.intermediate = reader.optional("intermediate", projector.intermediate);
  projector.activation = one_of(reader, "activation", kActivations, projector.activation);
  projector.bias = reader.optional("bias", projector.bias);
  reader.finish();
  return projector;
}

Json projector_json(const ProjectorSpec& projector) {
  Json document = {{"norm_tokens", projector.norm_tokens},
                   {"norm_merged", projector.norm_merged},
                   {"norm_epsilon", projector.norm_epsilon},
                   {"num_matrices", projector.num_matrices},
                   {"intermediate", projector.intermediate},
                   {"activation", kActivations[static_cast<std::size_t>(projector.activation)]},
                   {"bias", projector.bias}};
  put_set(document, "average", projector.average);
  put_set(document, "rms_merged", projector.rms_merged);
  return document;
}

// [[rows, columns], …]
std::vector<std::array<int, 2>> read_canvases(ObjectReader& reader) {
  std::vector<std::array<int, 2>> canvases;
  for (const auto& [canvas, place] : reader.array("canvases")) {
    if (!canvas->is_array() || canvas->size() != 2) {
      throw InvalidInput(
          fmt::format("{}: {} given; [rows, columns] is needed", place, canvas->dump()));
    }
    canvases.push_back({value_as<int>((*canvas)[0], place), value_as<int>((*canvas)[1], place)});
  }
  return canvases;
}

TilingSpec read_tiling(ObjectReader reader) {
  TilingSpec tiling;
  reader.required<std::string>("kind");
  tiling.kind = one_of(reader, "kind", kTilings, tiling.kind);
  if (tiling.kind == TilingSpec::Kind::kLongestEdge) {
    tiling.longest_edge = reader.required<int>("longest_edge");
    tiling.split = reader.optional("split", tiling.split);
  } else if (tiling.kind == TilingSpec::Kind::kBestCanvas) {
    tiling.min_tiles = reader.optional("min_tiles", tiling.min_tiles);
    tiling.max_tiles = reader.optional("max_tiles", tiling.max_tiles);
  } else if (tiling.kind == TilingSpec::Kind::kAnyResolution) {
    tiling.canvases = read_canvases(reader);
    tiling.feature_tiles = reader.optional("feature_tiles", tiling.feature_tiles);
    tiling.single_image = reader.optional("single_image", tiling.single_image);
  }
  reader.finish();
  return tiling;
}

Json tiling_json(const TilingSpec& tiling) {
  Json document = {{"kind", kTilings[static_cast<std::size_t>(tiling.kind)]}};
  if (tiling.kind == TilingSpec::Kind::kLongestEdge) {
    document["longest_edge"] = tiling.longest_edge;
    document["split"] = tiling.split;
  } else if (tiling.kind == TilingSpec::Kind::kAnyResolution) {
    document["canvases"] = tiling.canvases;
    document["feature_tiles"] = tiling.feature_tiles;
    document["single_image"] = tiling.single_image;
  } else {
    document["min_tiles"] = tiling.min_tiles;
    document["max_tiles"] = tiling.max_tiles;
  }
  return document;
}

VideoSpec read_video(ObjectReader reader) {
  VideoSpec video;
  video.sampling = one_of(reader, "sampling", kSamplings, video.sampling);
  video.min_frames = reader.optional("min_frames", video.min_frames);
  video.max_frames = reader.optional("max_frames", video.max_frames);
  video.min_pixels = reader.optional("min_pixels", video.min_pixels);
  video.max_pixels = reader.optional("max_pixels", video.max_pixels);
  video.shared_pixels = reader.optional("shared_pixels", video.shared_pixels);
  video.tokens_per_second = reader.optional("tokens_per_second", video.tokens_per_second);
  reader.finish();
  return video;
}

Json video_json(const VideoSpec& video) {
  return {{"sampling", kSamplings[static_cast<std::size_t>(video.sampling)]},
          {"min_frames", video.min_frames},
          {"max_frames", video.max_frames},
          {"min_pixels", video.min_pixels},
          {"max_pixels", video.max_pixels},
          {"shared_pixels", video.shared_pixels},
          {"tokens_per_second", video.tokens_per_second}};
}

Json scaling_json(const RopeScaling& scaling) {
  Json document = {{"kind", kScalings[static_cast<std::size_t>(scaling.kind)]},
                   {"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    document["low_freq_factor"] = scaling.low_freq_factor;
    document["high_freq_factor"] = scaling.high_freq_factor;
    document["original_max_position"] = scaling.original_max_position;
  }
  return document;
}

void add_unusual(const BlockSpec& block, Json& document) {
  const BlockSpec usual;
  put_unusual(document, "norm", block.norm, usual.norm, kNorms);
  put_unusual(document, "norm_epsilon", block.norm_epsilon, usual.norm_epsilon);
  put_unusual(document, "activation", block.activation, usual.activation, kActivations);
  put_set(document, "qkv_bias", block.qkv_bias);
  put_set(document, "output_bias", block.output_bias);
  put_set(document, "mlp_bias", block.mlp_bias);
  put_set(document, "plain_mlp", !block.gated_mlp);
  put_set(document, "layer_scale", block.layer_scale);
  put_set(document, "post_norm", block.post_norm);
  if (!block.key_bias) {
    document["key_bias"] = false;
  }
  put_set(document, "frozen_parameters", block.frozen_parameters);
  if (block.lora.rank > 0) {
    document["lora"] = to_json(block.lora);
  }
}

EncoderSpec read_encoder(const std::string& name, const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  EncoderSpec encoder;
  encoder.name = name;
  const std::string modality = reader.optional("modality", name);
  encoder.modality = modality == "audio" ? Modality::kAudio : Modality::kVision;
  if (name_of(encoder.modality) != modality) {
    if (reader.has("modality")) {
      reader.fail("modality",
                  fmt::format("'{}' is not a modality; allowed: vision, audio", modality));
    }
    const std::vector<std::string> usual = {"vision", "audio", "llm", "name"};
    reader.fail("modality",
                "missing; an encoder that is not called vision or audio needs one" +
                    close_match(name, usual));
  }
  read_block(reader, encoder);
  encoder.packed_qkv = !reader.optional("separate_qkv", !encoder.packed_qkv);
  encoder.projector = read_projector(reader.optional_object("projector"));
  if (encoder.modality == Modality::kVision) {
    encoder.patch_size = reader.optional("patch_size", encoder.patch_size);
    encoder.merge_size = reader.optional("merge_size", encoder.merge_size);
    encoder.temporal_patch_size =
        reader.optional("temporal_patch_size", encoder.temporal_patch_size);
    encoder.rope_theta = reader.optional("rope_theta", encoder.rope_theta);
    encoder.rotary = one_of(reader, "rotary", kRotaryLayouts, encoder.rotary);
    encoder.table_side = reader.optional("table_side", encoder.table_side);
    encoder.unused_pixels = reader.optional("unused_pixels", encoder.unused_pixels);
    encoder.table_interpolated = reader.optional("table_interpolated", encoder.table_interpolated);
    encoder.center_crop = reader.optional("center_crop", encoder.center_crop);
    encoder.resize_filter = one_of(reader, "resize_filter", kFilters, encoder.resize_filter);
    if (reader.has("tiling")) {
      encoder.tiling = read_tiling(reader.object("tiling"));
    }
    encoder.video = read_video(reader.optional_object("video"));
    read_channels(reader, "pixel_mean", encoder.pixel_mean);
    read_channels(reader, "pixel_deviation", encoder.pixel_deviation);
    encoder.class_token = reader.optional("class_token", encoder.class_token);
    encoder.patch_bias = reader.optional("patch_bias", encoder.patch_bias);
    encoder.embedding_norm = reader.optional("embedding_norm", encoder.embedding_norm);
    encoder.min_pixels = reader.optional("min_pixels", encoder.min_pixels);
    encoder.max_pixels = reader.optional("max_pixels", encoder.max_pixels);
    encoder.window_size = reader.optional("window_size", encoder.window_size);
    encoder.full_attention_layers = reader.list<int>("full_attention_layers");
    encoder.deepstack_layers = reader.list<int>("deepstack_layers");
    encoder.frames_per_second = reader.optional("frames_per_second", encoder.frames_per_second);
    encoder.default_frame_width =
        reader.optional("default_frame_width", encoder.default_frame_width);
    encoder.default_frame_height =
        reader.optional("default_frame_height", encoder.default_frame_height);
  } else {
    encoder.window_seconds = reader.optional("window_seconds", encoder.window_seconds);
    encoder.pad_windows = reader.optional("pad_windows", encoder.pad_windows);
    encoder.masked_padding = reader.optional("masked_padding", encoder.masked_padding);
    encoder.stored_positions = reader.optional("stored_positions", encoder.stored_positions);
    encoder.mel_bands = reader.optional("mel_bands", encoder.mel_bands);
  }
  encoder.projector_frozen = reader.optional("projector_frozen", encoder.projector_frozen);
  reader.finish();
  return encoder;
}

LlmSpec read_llm(ObjectReader reader) {
  LlmSpec llm;
  read_block(reader, llm);
  llm.num_kv_heads = reader.optional("num_kv_heads", llm.num_heads);
  llm.head_dim = reader.optional("head_dim", 0);
  llm.vocab_size = reader.required<int>("vocab_size");
  llm.rope_theta = reader.optional("rope_theta", llm.rope_theta);
  llm.max_tokens = reader.optional("max_tokens", llm.max_tokens);
  llm.tie_word_embeddings = reader.optional("tie_word_embeddings", llm.tie_word_embeddings);
  llm.qk_norm = reader.optional("qk_norm", llm.qk_norm);
  if (reader.has("rope_scaling")) {
    llm.rope_scaling = read_scaling(reader.object("rope_scaling"));
  }
  llm.mrope_sections = reader.list<int>("mrope_sections");
  llm.mrope_interleaved = reader.optional("mrope_interleaved", llm.mrope_interleaved);
  llm.position_rows = reader.optional("position_rows", llm.position_rows);
  llm.sliding_window = reader.optional("sliding_window", llm.sliding_window);
  llm.full_attention_layers = reader.list<int>("full_attention_layers");
  llm.full_image_attention = reader.optional("full_image_attention", llm.full_image_attention);
  llm.cross_attention = reader.optional("cross_attention", llm.cross_attention);
  llm.deepstack = reader.optional("deepstack", llm.deepstack);
  reader.finish();
  if (llm.head_dim == 0 && llm.num_heads > 0) {
    if (llm.hidden % llm.num_heads != 0) {
      reader.fail("head_dim",
                  fmt::format("missing, and hidden {} is not divisible by num_heads {}",
                              llm.hidden,
                              llm.num_heads));
    }
    llm.head_dim = llm.hidden / llm.num_heads;
  }
  return llm;
}

Json encoder_json(const EncoderSpec& encoder) {
  const EncoderSpec usual;
  Json document = {{"modality", name_of(encoder.modality)},
                   {"num_layers", encoder.num_layers},
                   {"hidden", encoder.hidden},
                   {"num_heads", encoder.num_heads},
                   {"intermediate", encoder.intermediate}};
  add_unusual(encoder, document);
  if (!encoder.packed_qkv) {
    document["separate_qkv"] = true;
  }
  if (encoder.projector != usual.projector) {
    document["projector"] = projector_json(encoder.projector);
  }
  if (encoder.modality == Modality::kVision) {
    document["patch_size"] = encoder.patch_size;
    document["merge_size"] = encoder.merge_size;
    document["min_pixels"] = encoder.min_pixels;
    document["max_pixels"] = encoder.max_pixels;
    if (encoder.window_size > 0) {
      document["window_size"] = encoder.window_size;
      document["full_attention_layers"] = encoder.full_attention_layers;
    }
    put_unusual(
        document, "temporal_patch_size", encoder.temporal_patch_size, usual.temporal_patch_size);
    put_unusual(document, "rope_theta", encoder.rope_theta, usual.rope_theta);
    put_unusual(document, "rotary", encoder.rotary, usual.rotary, kRotaryLayouts);
    put_unusual(document, "pixel_mean", encoder.pixel_mean, usual.pixel_mean);
    put_unusual(document, "pixel_deviation", encoder.pixel_deviation, usual.pixel_deviation);
    put_unusual(document, "table_side", encoder.table_side, usual.table_side);
    put_unusual(document, "unused_pixels", encoder.unused_pixels, usual.unused_pixels);
    put_unusual(document, "resize_filter", encoder.resize_filter, usual.resize_filter, kFilters);
    if (encoder.tiling.kind != TilingSpec::Kind::kNone) {
      document["tiling"] = tiling_json(encoder.tiling);
    }
    if (encoder.video != usual.video) {
      document["video"] = video_json(encoder.video);
    }
    put_set(document, "deepstack_layers", encoder.deepstack_layers);
    put_set(document, "center_crop", encoder.center_crop);
    put_set(document, "table_interpolated", encoder.table_interpolated);
    put_set(document, "class_token", encoder.class_token);
    put_set(document, "patch_bias", encoder.patch_bias);
    put_set(document, "embedding_norm", encoder.embedding_norm);
    document["frames_per_second"] = encoder.frames_per_second;
    document["default_frame_width"] = encoder.default_frame_width;
    document["default_frame_height"] = encoder.default_frame_height;
  } else {
    document["window_seconds"] = encoder.window_seconds;
    document["pad_windows"] = encoder.pad_windows;
    put_set(document, "masked_padding", encoder.masked_padding);
    put_set(document, "stored_positions", encoder.stored_positions);
    put_unusual(document, "mel_bands", encoder.mel_bands, usual.mel_bands);
  }
  document["frozen"] = encoder.frozen;
  document["projector_frozen"] = encoder.projector_frozen;
  return document;
}

Json llm_json(const LlmSpec& llm) {
  Json document = {{"num_layers", llm.num_layers},
                   {"hidden", llm.hidden},
                   {"num_heads", llm.num_heads},
                   {"num_kv_heads", llm.num_kv_heads},
                   {"head_dim", llm.head_dim},
                   {"intermediate", llm.intermediate},
                   {"vocab_size", llm.vocab_size},
                   {"rope_theta", llm.rope_theta},
                   {"max_tokens", llm.max_tokens},
                   {"frozen", llm.frozen}};
  put_set(document, "tie_word_embeddings", llm.tie_word_embeddings);
  add_unusual(llm, document);
  put_set(document, "qk_norm", llm.qk_norm);
  if (llm.rope_scaling.kind != RopeScaling::Kind::kNone) {
    document["rope_scaling"] = scaling_json(llm.rope_scaling);
  }
  put_set(document, "mrope_sections", llm.mrope_sections);
  put_set(document, "mrope_interleaved", llm.mrope_interleaved);
  put_set(document, "deepstack", llm.deepstack);
  put_set(document, "position_rows", llm.position_rows);
  if (llm.sliding_window > 0) {
    document["sliding_window"] = llm.sliding_window;
    document["full_attention_layers"] = llm.full_attention_layers;
  }
  put_set(document, "full_image_attention", llm.full_image_attention);
  put_set(document, "cross_attention", llm.cross_attention);
  return document;
}

}  // namespace

ModelSpec read_model(const std::filesystem::path& path) {
  return model_from_json(read_toml_file(path), path.string());
}

ModelSpec model_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  ModelSpec model;
  model.name = reader.required<std::string>("name");
  model.llm = read_llm(reader.object("llm"));
  for (const auto& [key, value] : document.items()) {
    if (key != "name" && key != "llm" && value.is_object()) {
      reader.has(key);
      model.encoders.push_back(read_encoder(key, value, reader.where(key)));
    }
  }
  reader.finish();
  validate(model, where);
  check_training(model, where);
  return model;
}

Json to_json(const ModelSpec& model) {
  Json document = {{"name", model.name}};
  for (const EncoderSpec& encoder : model.encoders) {
    document[encoder.name] = encoder_json(encoder);
  }
  document["llm"] = llm_json(model.llm);
  return document;
}

}  // namespace entrain
