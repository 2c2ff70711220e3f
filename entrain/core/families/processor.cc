#include "entrain/core/families/processor.h"

#include <cmath>

#include <fmt/format.h>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

constexpr int kBicubic = 3;  // of Pillow

void read_channels(HfConfig& config, const char* key, std::array<double, 3>& channels) {
  if (config.reader().find(key) == nullptr) {
    return;
  }
  const auto values = config.reader().array(key);
  if (values.size() != channels.size()) {
    config.reader().fail(key, fmt::format("{} numbers given; three are needed", values.size()));
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    channels[i] = value_as<double>(*values[i].first, values[i].second);
  }
}

// `size` or `crop_size` of images of one size: a number, or {height, width}.
void expect_side(HfConfig& config, const char* key, int side) {
  const Json* given = config.reader().find(key);
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
  if (config.reader().find("size") != nullptr) {
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

}  // namespace

void read_processor(const Json& document, const std::string& where, EncoderSpec& vision) {
  HfConfig config(document, where);
  read_channels(config, "image_mean", vision.pixel_mean);
  read_channels(config, "image_std", vision.pixel_deviation);
  for (const char* step : {"do_resize", "do_rescale", "do_normalize"}) {
    config.expect(step, true);
  }
  config.expect("resample", kBicubic);
  const auto factor = config.optional("rescale_factor", 1.0 / 255.0);
  if (std::abs(factor * 255.0 - 1.0) > 1e-6) {
    config.reader().fail("rescale_factor", fmt::format("{} given; allowed: 1 / 255", factor));
  }
  if (!has_one_size(vision)) {
    read_limits(config, vision);
  } else {
    const int side = vision.table_side * vision.patch_size;
    vision.center_crop = config.optional("do_center_crop", vision.center_crop);
    expect_side(config, "size", side);
    expect_side(config, "crop_size", side);
  }
  // Tiling and padding.
  for (const char* step :
       {"do_image_splitting", "crop_to_patches", "do_pad", "image_grid_pinpoints"}) {
    config.expect(step, false);
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
                   "return_tensors",
                   "min_patches",
                   "max_patches",
                   "max_image_size",
                   "pad_size",
                   "image_seq_length"});
  config.finish();
}

}  // namespace entrain
