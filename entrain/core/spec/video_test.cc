#include "entrain/core/spec/video.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

EncoderSpec encoder_of(VideoSpec::Sampling sampling) {
  EncoderSpec encoder;
  encoder.temporal_patch_size = 2;
  encoder.video.sampling = sampling;
  return encoder;
}

VideoSize video_of(std::int64_t frames, double fps, ImageSize size = {280, 280}) {
  return {static_cast<double>(frames) / fps, frames, size};
}

// Frames, frames per second → how many are read, the first six, the last: from the video
// processors of Qwen2-VL and Qwen3-VL in transformers 5.23.
struct SamplingCase {
  std::int64_t frames;
  double fps;
  std::size_t read;
  std::vector<std::int64_t> first;
  std::int64_t last;
};

void expect_frames(VideoSpec::Sampling sampling, const std::vector<SamplingCase>& cases) {
  const EncoderSpec encoder = encoder_of(sampling);
  for (const SamplingCase& c : cases) {
    std::vector<std::int64_t> found = frame_indices(encoder, video_of(c.frames, c.fps));
    ASSERT_EQ(found.size(), c.read) << c.frames << " frames at " << c.fps;
    EXPECT_EQ(found.back(), c.last) << c.frames << " frames at " << c.fps;
    found.resize(c.first.size());
    EXPECT_EQ(found, c.first) << c.frames << " frames at " << c.fps;
    EXPECT_EQ(video_work(encoder, video_of(c.frames, c.fps)).frames,
              static_cast<std::int64_t>(c.read));
  }
}

TEST(FrameIndices, AreQwen2VlsAtEqualSteps) {
  expect_frames(VideoSpec::Sampling::kStride,
                {{2, 30, 2, {0, 1}, 1},
                 {3, 30, 2, {0, 1}, 1},
                 {5, 1, 4, {0, 1, 2, 3}, 3},
                 {60, 30, 4, {0, 15, 30, 45}, 45},
                 {61, 30, 4, {0, 15, 30, 45}, 45},
                 {75, 25, 6, {0, 12, 25, 37, 50, 62}, 62},
                 {100, 29.97, 6, {0, 16, 33, 50, 66, 83}, 83},
                 {3000, 30, 200, {0, 15, 30, 45, 60, 75}, 2985},
                 {24000, 24, 768, {0, 31, 62, 93, 125, 156}, 23968},
                 {9, 2, 8, {0, 1, 2, 3, 4, 5}, 7}});
}

TEST(FrameIndices, AreQwen3VlsSpreadFromFirstToLast) {
  expect_frames(VideoSpec::Sampling::kSpread,
                {{2, 30, 2, {0, 1}, 1},
                 {3, 30, 3, {0, 1, 2}, 2},
                 {5, 1, 5, {0, 1, 2, 3, 4}, 4},
                 {60, 30, 4, {0, 20, 39, 59}, 59},
                 {61, 30, 4, {0, 20, 40, 60}, 60},
                 {75, 25, 6, {0, 15, 30, 44, 59, 74}, 74},
                 {24000, 24, 768, {0, 31, 63, 94, 125, 156}, 23999}});
}

TEST(FrameIndices, AreAllWhereNothingIsSampled) {
  expect_frames(VideoSpec::Sampling::kAll, {{3, 30, 3, {0, 1, 2}, 2}});
}

// Frames, width, height, block, limits → size: from Qwen3-VL's smart_resize.
TEST(VideoWork, SharesPixelsAmongFrames) {
  struct Case {
    std::int64_t frames;
    ImageSize size;
    int factor;
    std::int64_t min_pixels, max_pixels;
    ImageSize resized;
  };
  for (const Case& c : std::vector<Case>{{4, {640, 480}, 32, 131072, 786432, {512, 384}},
                                         {8, {640, 480}, 32, 131072, 786432, {352, 256}},
                                         {5, {100, 100}, 32, 131072, 786432, {192, 192}},
                                         {7, {100, 100}, 32, 4096, 25165824, {96, 96}},
                                         {768, {1920, 1080}, 32, 4096, 25165824, {224, 128}},
                                         {2, {1000, 20}, 32, 4096, 25165824, {1600, 32}},
                                         {4, {15, 15}, 28, 4096, 786432, {56, 56}}}) {
    EncoderSpec encoder = encoder_of(VideoSpec::Sampling::kAll);
    encoder.patch_size = c.factor / 2;
    encoder.video.min_pixels = c.min_pixels;
    encoder.video.max_pixels = c.max_pixels;
    encoder.video.shared_pixels = true;
    EXPECT_EQ(video_work(encoder, video_of(c.frames, 2, c.size)).size, c.resized) << c.frames;
  }
}

TEST(VideoWork, HasLimitsOfItsOwnOrThoseOfImages) {
  EncoderSpec encoder = encoder_of(VideoSpec::Sampling::kAll);
  encoder.max_pixels = 28 * 28 * 4;
  EXPECT_EQ(video_work(encoder, video_of(4, 2)).size, (ImageSize{56, 56}));
  encoder.video.max_pixels = 28 * 28 * 9;
  EXPECT_EQ(video_work(encoder, video_of(4, 2)).size, (ImageSize{84, 84}));
}

TEST(VideoWork, CountsTimeInTokensPerSecond) {
  EncoderSpec encoder = encoder_of(VideoSpec::Sampling::kStride);
  EXPECT_EQ(video_work(encoder, video_of(60, 30)).time_step, 0.0F);
  encoder.video.tokens_per_second = 25;
  // 4 frames of 2 s: a temporal patch is one second.
  EXPECT_EQ(video_work(encoder, video_of(60, 30)).time_step, 25.0F);
  EXPECT_FLOAT_EQ(video_work(encoder, video_of(100, 29.97)).time_step, 27.805583F);
}

TEST(VideoWork, RefusesWhatItCannotRead) {
  const auto refused = [](VideoSpec::Sampling sampling, const VideoSize& video) {
    return oracle::error_of<InvalidInput>([&] { video_work(encoder_of(sampling), video); });
  };
  EXPECT_NE(refused(VideoSpec::Sampling::kAll, {2.0, std::nullopt, std::nullopt})
                .find("without a number of frames"),
            std::string::npos);
  EXPECT_NE(
      refused(VideoSpec::Sampling::kStride, video_of(1, 30)).find("a video of 1 frames; 2 to"),
      std::string::npos);
}

}  // namespace
}  // namespace entrain
