// The ranges and rules that a model's numbers keep.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/text.h"
#include "entrain/core/spec/model.h"

namespace entrain {
namespace {

// Products of widths stay far within 64 bits.
constexpr std::int64_t kMostLayers = 10'000;
constexpr std::int64_t kGreatestWidth = 1 << 20;
constexpr std::int64_t kGreatestProduct = 1 << 24;  // of heads, or of merged tokens, and a width
constexpr std::int64_t kMostParameters = 1'000'000'000'000'000;
constexpr std::int64_t kGreatestVocabulary = 1 << 26;
constexpr std::int64_t kMostPixels = std::int64_t{1} << 40;
constexpr std::int64_t kMostTiles = 1024;  // of an image
constexpr int kMostVideoFrames = 1 << 20;
constexpr std::int64_t kLongestSample = std::int64_t{1} << 30;

class Checker {
 public:
  explicit Checker(std::string where) : where_(std::move(where)) {}

  void range(const char* key, std::int64_t value, std::int64_t least, std::int64_t most) const {
    if (value < least || value > most) {
      fail(key, fmt::format("{} given; allowed: {} to {}", value, least, most));
    }
  }
  void above(const char* key, double value, double least, double most) const {
    if (!(value > least && value <= most)) {
      fail(key, fmt::format("{} given; allowed: above {}, up to {}", value, least, most));
    }
  }
  void product(const char* key, std::int64_t value, const char* meaning) const {
    if (value > kGreatestProduct) {
      fail(key, fmt::format("{} is {}; allowed: up to {}", meaning, value, kGreatestProduct));
    }
  }
  void divisible(const char* key, int value, const char* divisor_name, int divisor) const {
    if (value % divisor != 0) {
      fail(key, fmt::format("{} is not divisible by {} {}", value, divisor_name, divisor));
    }
  }
  // Of a module with so many transformers: from 0, rising.
  void layers(const char* key, const std::vector<int>& given, int num_layers) const {
    for (std::size_t i = 0; i < given.size(); ++i) {
      range(key, given[i], i == 0 ? 0 : given[i - 1] + 1, num_layers - 1);
    }
  }
  [[noreturn]] void fail(const char* key, const std::string& message) const {
    throw InvalidInput(fmt::format("{}: {}", key_path(where_, key), message));
  }

 private:
  std::string where_;
};

// Names become table keys, CSV columns and parameter prefixes.
void check_name(const EncoderSpec& encoder, const std::string& where) {
  const std::string& name = encoder.name;
  const bool plain = !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                     });
  static const std::vector<std::string> kReserved = {
      "llm", "name", "makespan_s", "lower_bound_s", "gap", "assign_ms"};
  if (!plain || std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
    throw InvalidInput(fmt::format(
        "{}: '{}' cannot name an encoder; lower-case letters, digits and underscores are allowed, "
        "but not {}",
        where,
        name,
        join(kReserved)));
  }
}

void validate_block(const BlockSpec& block, const Checker& check) {
  check.range("num_layers", block.num_layers, 1, kMostLayers);
  check.range("hidden", block.hidden, 1, kGreatestWidth);
  check.range("intermediate", block.intermediate, 1, kGreatestWidth);
  check.above("norm_epsilon", block.norm_epsilon, 0.0, 1.0);
  check.above("rope_theta", block.rope_theta, 0.0, 1e12);
  if (!block.key_bias && (block.packed_qkv || !block.qkv_bias)) {
    check.fail("key_bias", "false given; allowed with qkv_bias and separate matrices alone");
  }
}

void validate_windows(const EncoderSpec& encoder, const Checker& check) {
  const std::vector<int>& full = encoder.full_attention_layers;
  check.range("window_size", encoder.window_size, 0, 1 << 16);
  check.divisible("window_size",
                  encoder.window_size,
                  "patch_size * merge_size,",
                  encoder.patch_size * encoder.merge_size);
  check.layers("full_attention_layers", full, encoder.num_layers);
  if (encoder.window_size == 0 && !full.empty()) {
    check.fail("full_attention_layers", "given without window_size: every layer attends fully");
  }
}

void validate_canvases(const EncoderSpec& encoder, const Checker& check) {
  const TilingSpec& tiling = encoder.tiling;
  if (encoder.merge_size != 1 || !encoder.deepstack_layers.empty()) {
    check.fail("tiling.kind", "any_resolution given; allowed with merge_size 1, without deepstack");
  }
  if (tiling.canvases.empty()) {
    check.fail("tiling.canvases", "[] given; one or more [rows, columns] are needed");
  }
  for (const auto& [rows, columns] : tiling.canvases) {
    check.range("tiling.canvases", rows, 1, kMostTiles - 1);
    check.range("tiling.canvases", columns, 1, (kMostTiles - 1) / rows);
    check.product("tiling.canvases",
                  std::int64_t{std::max(rows, columns)} * image_side(encoder),
                  "the longer side in pixels");
  }
  check.range("tiling.feature_tiles", tiling.feature_tiles, 0, kMostTiles);
}

void validate_tiling(const EncoderSpec& encoder, const Checker& check) {
  const TilingSpec& tiling = encoder.tiling;
  if (tiling.kind == TilingSpec::Kind::kNone) {
    return;
  }
  if (!has_one_size(encoder) || encoder.center_crop) {
    check.fail("tiling", "given; allowed with a table_side that is not interpolated, uncropped");
  }
  if (tiling.kind == TilingSpec::Kind::kAnyResolution) {
    validate_canvases(encoder, check);
  } else if (tiling.kind == TilingSpec::Kind::kLongestEdge) {
    check.range("tiling.longest_edge", tiling.longest_edge, 1, kLongestTiledEdge);
    const int side = image_side(encoder);
    const std::int64_t columns = tiling.longest_edge / side + 1;
    if (columns * columns >= kMostTiles) {
      check.fail("tiling.longest_edge",
                 fmt::format("{} pixels are up to {} tiles of {}; allowed: up to {}",
                             tiling.longest_edge,
                             columns * columns + 1,
                             side,
                             kMostTiles));
    }
  } else {
    check.range("tiling.max_tiles", tiling.max_tiles, 1, kMostTiles - 1);
    check.range("tiling.min_tiles", tiling.min_tiles, 1, tiling.max_tiles);
  }
}

void validate_video(const EncoderSpec& encoder, const Checker& check) {
  const VideoSpec& video = encoder.video;
  check.range("video.min_frames", video.min_frames, 2, kMostVideoFrames);
  check.range("video.max_frames", video.max_frames, video.min_frames, kMostVideoFrames);
  const std::int64_t most = video.max_pixels > 0 ? video.max_pixels : encoder.max_pixels;
  check.range("video.max_pixels", video.max_pixels, 0, kMostPixels);
  check.range("video.min_pixels", video.min_pixels, 0, most);
  check.above("video.tokens_per_second", video.tokens_per_second + 1e-9, 0.0, 1e6);
  const bool pairs = encoder.temporal_patch_size == 2 && !has_one_size(encoder);
  if (video.sampling != VideoSpec::Sampling::kRate && !pairs) {
    check.fail("video.sampling", "allowed with a temporal_patch_size of 2 and rotations alone");
  }
}

void validate_encoder(const EncoderSpec& encoder, const std::string& where) {
  const Checker check(where);
  validate_block(encoder, check);
  check.range("num_heads", encoder.num_heads, 1, encoder.hidden);
  check.divisible("hidden", encoder.hidden, "num_heads", encoder.num_heads);
  if (has_rotations(encoder) && encoder.hidden / encoder.num_heads % 4 != 0) {
    check.fail("hidden",
               fmt::format("hidden / num_heads is {}; a multiple of 4 is needed for rotary "
                           "positions in two dimensions",
                           encoder.hidden / encoder.num_heads));
  }
  check.range("projector.num_matrices", encoder.projector.num_matrices, 0, 2);
  check.range("projector.intermediate", encoder.projector.intermediate, 0, kGreatestWidth);
  if (encoder.modality == Modality::kVision) {
    check.range("patch_size", encoder.patch_size, 1, 1024);
    check.range("merge_size", encoder.merge_size, 1, 64);
    check.range("temporal_patch_size", encoder.temporal_patch_size, 1, 2);
    for (std::size_t channel = 0; channel < encoder.pixel_mean.size(); ++channel) {
      check.above("pixel_mean", encoder.pixel_mean[channel] + 1e-9, 0.0, 1.0);
      check.above("pixel_deviation", encoder.pixel_deviation[channel], 0.0, 10.0);
    }
    check.range("table_side", encoder.table_side, 0, 1 << 12);
    check.range("unused_pixels",
                encoder.unused_pixels,
                0,
                has_one_size(encoder) ? encoder.patch_size - 1 : 0);
    if (has_one_size(encoder)) {
      check.divisible("table_side", encoder.table_side, "merge_size", encoder.merge_size);
    }
    if (encoder.class_token && encoder.table_side == 0) {
      check.fail("class_token", "given without table_side: rotations have no place for it");
    }
    if (!has_rotations(encoder) && encoder.window_size > 0) {
      check.fail("window_size", "given with table_side; windows need rotary positions");
    }
    if (encoder.table_interpolated && (encoder.table_side < 2 || encoder.class_token)) {
      check.fail("table_interpolated", "needs a table_side of 2 or more, and no class_token");
    }
    check.product("merge_size", merged_tokens(encoder) * encoder.hidden, "merge_size² * hidden");
    const std::int64_t side = std::int64_t{encoder.patch_size} * encoder.merge_size;
    check.range("max_pixels", encoder.max_pixels, side * side, kMostPixels);
    check.range("min_pixels", encoder.min_pixels, 1, encoder.max_pixels);
    validate_windows(encoder, check);
    check.layers("deepstack_layers", encoder.deepstack_layers, encoder.num_layers);
    check.above("frames_per_second", encoder.frames_per_second, 0.0, 1000.0);
    check.range("default_frame_width", encoder.default_frame_width, 1, 1 << 16);
    check.range("default_frame_height", encoder.default_frame_height, 1, 1 << 16);
    validate_tiling(encoder, check);
    validate_video(encoder, check);
  } else {
    check.above("window_seconds", encoder.window_seconds, 0.0, 86'400.0);
    check.range("mel_bands", encoder.mel_bands, 1, 1024);
    if (encoder.masked_padding && encoder.pad_windows) {
      check.fail("masked_padding", "given with pad_windows, where attention reads the padding");
    }
  }
}

void validate_rotary(const LlmSpec& llm, const Checker& check) {
  const RopeScaling& scaling = llm.rope_scaling;
  check.above("rope_scaling.factor", scaling.factor, 0.0, 1e6);
  check.above("rope_scaling.low_freq_factor", scaling.low_freq_factor, 0.0, 1e6);
  check.above(
      "rope_scaling.high_freq_factor", scaling.high_freq_factor, scaling.low_freq_factor, 1e6);
  check.range(
      "rope_scaling.original_max_position", scaling.original_max_position, 1, kLongestSample);
  if (llm.mrope_sections.empty()) {
    if (llm.mrope_interleaved) {
      check.fail("mrope_interleaved", "given without mrope_sections");
    }
    return;
  }
  int pairs = 0;
  for (const int section : llm.mrope_sections) {
    check.range("mrope_sections", section, 0, llm.head_dim);
    pairs += section;
  }
  if (llm.mrope_sections.size() != 3 || 2 * pairs != llm.head_dim) {
    check.fail("mrope_sections",
               fmt::format("{} sections of {} pairs in all given; needed are three (time, rows, "
                           "columns), {} pairs: half of head_dim",
                           llm.mrope_sections.size(),
                           pairs,
                           llm.head_dim / 2));
  }
}

void validate_llm(const LlmSpec& llm, const std::string& where) {
  const Checker check(where);
  validate_block(llm, check);
  check.range("num_heads", llm.num_heads, 1, kGreatestWidth);
  check.range("num_kv_heads", llm.num_kv_heads, 1, llm.num_heads);
  check.divisible("num_heads", llm.num_heads, "num_kv_heads", llm.num_kv_heads);
  check.range("head_dim", llm.head_dim, 2, kGreatestWidth);
  check.divisible("head_dim", llm.head_dim, "the pair size of rotary positions,", 2);
  check.product("head_dim", std::int64_t{llm.num_heads} * llm.head_dim, "num_heads * head_dim");
  check.range("vocab_size", llm.vocab_size, 1, kGreatestVocabulary);
  validate_rotary(llm, check);
  check.range("max_tokens", llm.max_tokens, 1, kLongestSample);
  check.range("deepstack", llm.deepstack, 0, llm.num_layers);
  check.range("position_rows", llm.position_rows, 0, kLongestSample);
  check.range("sliding_window", llm.sliding_window, 0, kLongestSample);
  check.layers("full_attention_layers", llm.full_attention_layers, llm.num_layers);
  if (llm.sliding_window == 0 && !llm.full_attention_layers.empty()) {
    check.fail("full_attention_layers", "given without sliding_window: every layer attends fully");
  }
}

// Features without a projection are read by cross attention alone.
void check_cross_attention(const ModelSpec& model, const std::string& where) {
  for (const EncoderSpec& encoder : model.encoders) {
    const bool bare = encoder.projector.num_matrices == 0;
    if (bare != model.llm.cross_attention || (bare && encoder.hidden != model.llm.hidden)) {
      throw InvalidInput(fmt::format(
          "{}: llm.cross_attention is {}, {}.projector.num_matrices {} and {}.hidden {}; "
          "cross attention, and it alone, needs 0 matrices and the LLM's width {}",
          where,
          model.llm.cross_attention,
          encoder.name,
          encoder.projector.num_matrices,
          encoder.name,
          encoder.hidden,
          model.llm.hidden));
    }
  }
}

void check_deepstack(const ModelSpec& model, const std::string& where) {
  int most = 0;
  for (const EncoderSpec& encoder : model.encoders) {
    most = std::max(most, feature_levels(encoder) - 1);
  }
  if (most != model.llm.deepstack) {
    throw InvalidInput(
        fmt::format("{}: llm.deepstack is {}, and the encoders have up to {} "
                    "deepstack_layers; the two have to be equal",
                    where,
                    model.llm.deepstack,
                    most));
  }
}

// What ranges of single numbers leave: a sum over layers that bytes of no run could be counted of.
void check_parameters(const ModelSpec& model, const std::string& where) {
  std::int64_t sum = 0;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      sum += layer_parameters(model, module, layer);
      if (sum > kMostParameters) {
        throw InvalidInput(
            fmt::format("{}: the model has more than {} parameters (num_layers, "
                        "hidden and intermediate of its modules)",
                        where,
                        format_count(kMostParameters)));
      }
    }
  }
}

}  // namespace

void validate(const ModelSpec& model, const std::string& where) {
  for (std::size_t i = 0; i < model.encoders.size(); ++i) {
    const EncoderSpec& encoder = model.encoders[i];
    check_name(encoder, where);
    for (std::size_t j = 0; j < i; ++j) {
      if (model.encoders[j].name == encoder.name) {
        throw InvalidInput(fmt::format("{}: two encoders are called '{}'", where, encoder.name));
      }
    }
    validate_encoder(encoder, key_path(where, encoder.name));
    if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution &&
        !model.llm.mrope_sections.empty()) {
      Checker(key_path(where, encoder.name))
          .fail("tiling.kind", "any_resolution given; allowed without mrope_sections in [llm]");
    }
  }
  validate_llm(model.llm, key_path(where, module_name(model, model.llm_module())));
  check_deepstack(model, where);
  check_cross_attention(model, where);
  check_parameters(model, where);
}

}  // namespace entrain
