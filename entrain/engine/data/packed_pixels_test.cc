#include "entrain/engine/data/packed_pixels.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "entrain/engine/data/patches.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

ModelSpec pixel_model(int frames) {
  ModelSpec model;
  EncoderSpec vision;
  vision.name = "vision";
  vision.patch_size = 4;
  vision.merge_size = 2;
  vision.temporal_patch_size = frames;
  vision.min_pixels = 64;
  vision.max_pixels = 1 << 20;
  EncoderSpec audio = vision;
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  model.encoders = {vision, audio};
  return model;
}

DecodedImage noise(int seed) {
  Rng random(static_cast<std::uint64_t>(seed));
  DecodedImage image;
  image.size = {32, 24};
  image.rgb.resize(32 * 24 * 3);
  for (std::uint8_t& value : image.rgb) {
    value = static_cast<std::uint8_t>(random.below(256));
  }
  return image;
}

void expect_same(const SegmentData& a, const SegmentData& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.columns, b.columns);
  ASSERT_EQ(a.input.sizes(), b.input.sizes());
  EXPECT_EQ(std::memcmp(a.input.const_data_ptr(), b.input.const_data_ptr(), a.input.nbytes()), 0);
}

TEST(PackedPixels, AreTheSameToTheLastBitInAFractionOfTheSize) {
  for (const int frames : {1, 2}) {
    for (const bool usual : {true, false}) {
      ModelSpec model = pixel_model(frames);
      if (!usual) {
        model.encoders[0].pixel_mean = {0.48145466, 0.4578275, 0.40821073};
        model.encoders[0].pixel_deviation = {0.26862954, 0.26130258, 0.27577711};
      }
      const SegmentData image =
          patches_of(resize_image(noise(1), model.encoders[0]), 0, model.encoders[0]);
      const std::optional<PackedPixels> pixels = packed(image, model, 0);
      ASSERT_TRUE(pixels.has_value());
      EXPECT_EQ(pixels->values.size() * 4 * static_cast<std::size_t>(frames), image.input.nbytes());
      expect_same(unpacked(*pixels, model), image);
    }
  }
}

TEST(PackedPixels, KeepFramesThatDiffer) {
  const ModelSpec model = pixel_model(2);
  const SegmentData video = patches_of_frames(noise(1), noise(2), model.encoders[0]);
  const std::optional<PackedPixels> pixels = packed(video, model, 0);
  ASSERT_TRUE(pixels.has_value());
  EXPECT_EQ(pixels->frames, 2);
  EXPECT_EQ(pixels->values.size() * 4, video.input.nbytes());
  expect_same(unpacked(*pixels, model), video);
}

TEST(PackedPixels, AreRefusedOfValuesThatAreNone) {
  const ModelSpec model = pixel_model(1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.12345F, 1.01F, -3.0F, infinity, -infinity, std::nanf("")}) {
    SegmentData image = patches_of(resize_image(noise(1), model.encoders[0]), 0, model.encoders[0]);
    image.input[3][5] = value;
    EXPECT_FALSE(packed(image, model, 0).has_value()) << value;
  }
}

TEST(PackedPixels, OfOtherSizesOrModulesAreRefused) {
  const ModelSpec model = pixel_model(2);
  const PackedPixels sound = {0, 2, 2, 1, std::string(4 * 3 * 16, 'x')};
  EXPECT_EQ(unpacked(sound, model).input.size(0), 4);
  for (const int module : {-1, 1, 2}) {
    PackedPixels other = sound;
    other.module = module;
    error_of<InvalidInput>([&] { unpacked(other, model); });
  }
  for (const int frames : {-1, 0, 3}) {
    PackedPixels other = sound;
    other.frames = frames;
    error_of<InvalidInput>([&] { unpacked(other, model); });
  }
  PackedPixels other = sound;
  other.values.pop_back();
  error_of<InvalidInput>([&] { unpacked(other, model); });
}

}  // namespace
}  // namespace entrain::engine
