#include "entrain/core/families/processor.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/spec/video.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

// Of Pillow.
constexpr int kLanczos = 1;
constexpr int kBilinear = 2;
constexpr int kBicubic = 3;

void read_channels(HfConfig& config, const char* key, std::array<double, 3>& channels) {
  if (config.find(key) == nullptr) {
    return;
  }
  const auto values = config.array(key);
  if (values.size() != channels.size()) {
    config.fail(key, fmt::format("{} numbers given; three are needed", values.size()));
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    channels[i] = value_as<double>(*values[i].first, values[i].second);
  }
}

// `size` or `crop_size` of images of one size: a number, or {height, width}.
void expect_side(HfConfig& config, const char* key, int side) {
  const Json* given = config.find(key);
  if (given == nullptr || *given == side) {
    return;
  }
  HfConfig sides = config.object(key);
  for (const char* name : {"height", "width", "shortest_edge"}) {
    sides.expect(name, side);
  }
  sides.finish();
}

// Qwen2-VL's: pixels within limits.
void read_limits(HfConfig& config, EncoderSpec& vision) {
  if (config.find("size") != nullptr) {
    HfConfig size = config.object("size");
    vision.min_pixels = size.optional("shortest_edge", vision.min_pixels);
    vision.max_pixels = size.optional("longest_edge", vision.max_pixels);
    size.finish();
  }
  vision.min_pixels = config.optional("min_pixels", vision.min_pixels);
  vision.max_pixels = config.optional("max_pixels", vision.max_pixels);
  config.expect("patch_size", vision.patch_size);
  config.expect("merge_size", vision.merge_size);
  config.expect("temporal_patch_size", vision.temporal_patch_size);
}

void read_filter(HfConfig& config, EncoderSpec& vision) {
  if (vision.resize_filter == ResizeFilter::kBilinear) {
    config.expect("resample", kBilinear);
    return;
  }
  const int usual = vision.resize_filter == ResizeFilter::kLanczos ? kLanczos : kBicubic;
  const int given = config.optional("resample", usual);
  if (given != kLanczos && given != kBicubic) {
    config.fail(
        "resample",
        fmt::format("{} given; allowed: {} (Lanczos), {} (bicubic)", given, kLanczos, kBicubic));
  }
  vision.resize_filter = given == kLanczos ? ResizeFilter::kLanczos : ResizeFilter::kBicubic;
}

// Idefics3's: images of which the longest edge is resized, cut into tiles of max_image_size.
void read_longest_edge(HfConfig& config, EncoderSpec& vision, int side) {
  constexpr int kDefaultTile = 364;
  TilingSpec& tiling = vision.tiling;
  tiling.kind = TilingSpec::Kind::kLongestEdge;
  tiling.split = config.optional("do_image_splitting", true);
  tiling.longest_edge = 4 * kDefaultTile;
  if (config.find("size") != nullptr) {
    HfConfig size = config.object("size");
    tiling.longest_edge = size.required<int>("longest_edge");
    size.finish();
  }
  int tile = kDefaultTile;
  if (config.find("max_image_size") != nullptr) {
    HfConfig size = config.object("max_image_size");
    tile = size.required<int>("longest_edge");
    size.finish();
  }
  if (tile != side) {
    config.fail("max_image_size",
                fmt::format("tiles of {} pixels given; the model's images have {}", tile, side));
  }
  // Tiles are of one size, so that nothing is padded.
  config.harmless({"do_pad", "return_row_col_info"});
}

// GotOcr2's: the canvas of tiles that has the image's aspect ratio.
void read_best_canvas(HfConfig& config, EncoderSpec& vision, int side) {
  TilingSpec tiling;
  tiling.kind = TilingSpec::Kind::kBestCanvas;
  tiling.min_tiles = config.optional("min_patches", tiling.min_tiles);
  tiling.max_tiles = config.optional("max_patches", tiling.max_tiles);
  const bool crops = config.optional("crop_to_patches", false);
  if (crops || config.optional("processor_class", std::string()) == "InternVLProcessor") {
    vision.tiling = tiling;
  }
  expect_side(config, "size", side);
}

// LLaVA-NeXT's and LLaVA-OneVision's: tiles of the model's canvases, so that none is resized or
// cropped again.
void read_any_resolution(HfConfig& config, const EncoderSpec& vision, int side) {
  // Of several images LLaVA-NeXT's cuts each, LLaVA-OneVision's none.
  const std::string own = vision.tiling.single_image ? "LlavaOnevision" : "LlavaNext";
  const std::string type = config.optional("image_processor_type", own);
  if (!type.starts_with(own + "ImageProcessor") && type != own) {
    config.fail("image_processor_type",
                fmt::format("'{}' given; allowed: {}ImageProcessor", type, own));
  }
  expect_side(config, "size", side);
  expect_side(config, "crop_size", side);
  config.expect("aspect_ratio_setting", "anyres");
  config.harmless({"do_center_crop", "do_pad"});
  if (const Json* given = config.find("image_grid_pinpoints")) {
    const auto canvases = read_canvases(config, side);
    if (canvases != vision.tiling.canvases) {
      config.fail(
          "image_grid_pinpoints",
          fmt::format("{} given; the model's config.json has those of {} tiles [rows, columns]",
                      given->dump(),
                      Json(vision.tiling.canvases).dump()));
    }
  }
}

// What is done to every pixel.
void read_steps(HfConfig& config, EncoderSpec& vision) {
  read_channels(config, "image_mean", vision.pixel_mean);
  read_channels(config, "image_std", vision.pixel_deviation);
  for (const char* step : {"do_resize", "do_rescale", "do_normalize"}) {
    config.expect(step, true);
  }
  read_filter(config, vision);
  const auto factor = config.optional("rescale_factor", 1.0 / 255.0);
  if (std::abs(factor * 255.0 - 1.0) > 1e-6) {
    config.fail("rescale_factor", fmt::format("{} given; allowed: 1 / 255", factor));
  }
  config.harmless({"do_convert_rgb",
                   "image_processor_type",
                   "feature_extractor_type",
                   "processor_class",
                   "data_format",
                   "input_data_format",
                   "default_to_square",
                   "device",
                   "disable_grouping",
                   "return_tensors"});
}

// Tiling, padding and cropping that the family's processor does not have.
void refuse_other_steps(HfConfig& config, TilingSpec::Kind tiling) {
  using Kind = TilingSpec::Kind;
  std::vector<const char*> steps = {"do_pan_and_scan"};
  if (tiling != Kind::kAnyResolution) {
    steps.push_back("image_grid_pinpoints");
    if (tiling != Kind::kNone) {
      steps.insert(steps.end(), {"do_center_crop", "crop_size"});
    }
    if (tiling != Kind::kLongestEdge) {
      steps.push_back("do_pad");
    }
  }
  if (tiling != Kind::kLongestEdge) {
    steps.push_back("do_image_splitting");
  }
  if (tiling != TilingSpec::Kind::kBestCanvas) {
    steps.push_back("crop_to_patches");
  }
  for (const char* step : steps) {
    config.expect(step, false);
  }
}

}  // namespace

void read_processor(const Json& document,
                    const std::string& where,
                    EncoderSpec& vision,
                    TilingSpec::Kind tiling) {
  HfConfig config(document, where);
  if (tiling == TilingSpec::Kind::kLongestEdge) {
    vision.resize_filter = ResizeFilter::kLanczos;
  }
  read_steps(config, vision);
  const int side = image_side(vision);
  if (!has_one_size(vision)) {
    read_limits(config, vision);
  } else if (tiling == TilingSpec::Kind::kLongestEdge) {
    read_longest_edge(config, vision, side);
  } else if (tiling == TilingSpec::Kind::kBestCanvas) {
    read_best_canvas(config, vision, side);
  } else if (tiling == TilingSpec::Kind::kAnyResolution) {
    read_any_resolution(config, vision, side);
  } else {
    vision.center_crop = config.optional("do_center_crop", vision.center_crop);
    expect_side(config, "size", side);
    expect_side(config, "crop_size", side);
  }
  refuse_other_steps(config, tiling);
  config.harmless({"min_patches",
                   "max_patches",
                   "max_image_size",
                   "pad_size",
                   "image_seq_length",
                   "pan_and_scan_max_num_crops",
                   "pan_and_scan_min_crop_size",
                   "pan_and_scan_min_ratio_to_activate"});
  if (!reads_videos(vision)) {
    config.harmless({"video_sampling"});
  }
  config.finish();
}

void read_video_processor(const Json& document, const std::string& where, EncoderSpec& vision) {
  HfConfig config(document, where);
  EncoderSpec read = vision;
  read.min_pixels = vision.video.min_pixels;
  read.max_pixels = vision.video.max_pixels;
  read_steps(config, read);
  read_limits(config, read);
  if (read.pixel_mean != vision.pixel_mean || read.pixel_deviation != vision.pixel_deviation ||
      read.resize_filter != vision.resize_filter) {
    config.fail("image_mean", "image_mean, image_std and resample have to be those of images");
  }
  VideoSpec& video = vision.video;
  video.min_pixels = read.min_pixels;
  video.max_pixels = read.max_pixels;
  video.min_frames = config.optional("min_frames", video.min_frames);
  video.max_frames = config.optional("max_frames", video.max_frames);
  vision.frames_per_second = config.optional("fps", vision.frames_per_second);
  if (!config.optional("do_sample_frames", true)) {
    video.sampling = VideoSpec::Sampling::kAll;
  }
  for (const char* step : {"cap_pixels_per_frame", "do_center_crop", "do_pad", "num_frames"}) {
    config.expect(step, false);
  }
  config.harmless({"video_processor_type",
                   "max_video_tokens",
                   "crop_size",
                   "pad_size",
                   "return_metadata",
                   "video_metadata",
                   "size_divisor"});
  config.finish();
}

void read_audio_processor(const Json& document,
                          const std::string& where,
                          const EncoderSpec& audio) {
  HfConfig config(document, where);
  config.expect("feature_extractor_type", "WhisperFeatureExtractor");
  config.expect("feature_size", audio.mel_bands);
  config.expect("sampling_rate", 16'000);
  config.expect("hop_length", 160);
  config.expect("n_fft", 400);
  config.expect("chunk_length", audio.window_seconds);
  config.expect("n_samples", 160 * window_frames(audio));
  config.expect("nb_max_frames", window_frames(audio));
  config.expect("padding_side", "right");
  config.expect("padding_value", 0.0);
  config.expect("dither", 0.0);
  config.expect("do_normalize", false);
  config.harmless({"processor_class", "return_attention_mask"});
  if (audio.pad_windows) {
    config.harmless({"mel_filters"});  // Whisper's, which is known for costs alone
  }
  config.finish();
}

}  // namespace entrain
