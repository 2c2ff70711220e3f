#include "entrain/core/spec/workload.h"

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

// Width, height, factor, min_pixels, max_pixels → width, height, from an independent Python
// implementation of the published rule. The first twenty have Qwen2-VL's usual limits and hold
// halves (42, 70), extreme ratios and both limits; then two narrow images that stay above
// max_pixels; then forty at random.
struct ResizeCase {
  int width, height, factor;
  std::int64_t min_pixels, max_pixels;
  int resized_width, resized_height;
};
const std::vector<ResizeCase> kResizeCases = {
    {28, 28, 28, 3136, 1003520, 56, 56},
    {1, 1, 28, 3136, 1003520, 56, 56},
    {14, 14, 28, 3136, 1003520, 56, 56},
    {42, 42, 28, 3136, 1003520, 56, 56},
    {70, 98, 28, 3136, 1003520, 56, 112},
    {42, 14, 28, 3136, 1003520, 112, 56},
    {640, 480, 28, 3136, 1003520, 644, 476},
    {1920, 1080, 28, 3136, 1003520, 1316, 728},
    {4000, 3000, 28, 3136, 1003520, 1148, 840},
    {20000, 100, 28, 3136, 1003520, 14140, 56},
    {100, 20000, 28, 3136, 1003520, 56, 14140},
    {8, 1600, 28, 3136, 1003520, 28, 812},
    {5040, 5040, 28, 3136, 1003520, 980, 980},
    {1008, 1008, 28, 3136, 1003520, 980, 980},
    {1002, 1000, 28, 3136, 1003520, 980, 980},
    {1003, 1001, 28, 3136, 1003520, 980, 980},
    {29, 2000, 28, 3136, 1003520, 28, 1988},
    {56, 56, 28, 3136, 1003520, 56, 56},
    {55, 57, 28, 3136, 1003520, 56, 56},
    {3000, 15, 28, 3136, 1003520, 2996, 28},
    {10, 2000, 28, 3136, 784, 28, 812},
    {2000, 10, 28, 1, 3136, 28, 28},
    {19, 1, 32, 262144, 16777216, 2240, 128},
    {35, 128, 32, 1, 16777216, 32, 128},
    {682, 179, 28, 1, 1003520, 672, 168},
    {15, 171, 14, 50176, 250880, 70, 770},
    {27, 201, 28, 3136, 4014080, 28, 196},
    {7, 106, 8, 256, 16384, 8, 104},
    {159, 2, 14, 50176, 822083584, 2002, 28},
    {5209, 92, 14, 784, 784, 210, 14},
    {252, 838, 28, 1, 784, 28, 28},
    {13, 43, 28, 1, 3920, 28, 28},
    {3, 216, 8, 256, 1280, 8, 136},
    {134, 3284, 16, 256, 327680, 112, 2832},
    {2269, 552, 8, 1, 128, 16, 8},
    {33, 20, 28, 1, 3920, 28, 28},
    {188, 8, 16, 65536, 83886080, 1248, 64},
    {2393, 289, 8, 3136, 4014080, 2392, 288},
    {25, 781, 8, 3136, 200704, 24, 784},
    {10, 4, 28, 784, 1003520, 56, 28},
    {2, 93, 16, 65536, 1073741824, 48, 1760},
    {3750, 90, 14, 1, 12544, 714, 14},
    {88, 198, 32, 262144, 262144, 352, 768},
    {3, 143, 16, 1, 256, 16, 16},
    {303, 5, 28, 3136, 51380224, 448, 28},
    {12, 612, 28, 1, 784, 28, 28},
    {353, 17, 14, 784, 50176, 350, 14},
    {300, 25, 16, 65536, 4194304, 896, 80},
    {1, 124, 28, 200704, 1003520, 56, 5012},
    {48, 1190, 14, 3136, 4014080, 42, 1190},
    {4483, 385, 14, 196, 392, 56, 14},
    {3, 19, 28, 3136, 3136, 28, 168},
    {4535, 30, 28, 3136, 6272, 952, 28},
    {2036, 433, 28, 3136, 6272, 168, 28},
    {10, 1, 8, 256, 256, 56, 8},
    {41, 10, 28, 200704, 256901120, 924, 224},
    {2225, 7264, 8, 16384, 268435456, 2224, 7264},
    {11, 43, 28, 1, 1568, 28, 28},
    {551, 16, 28, 784, 1568, 224, 28},
    {477, 5375, 8, 3136, 3136, 16, 184},
    {13, 108, 28, 1, 784, 28, 28},
    {488, 238, 32, 1024, 1024, 32, 32},
};

TEST(SmartResize, GivesGoldenSizes) {
  for (const ResizeCase& c : kResizeCases) {
    const ImageSize resized =
        smart_resize({c.width, c.height}, c.factor, c.min_pixels, c.max_pixels);
    EXPECT_EQ(resized.width, c.resized_width) << c.width << "x" << c.height;
    EXPECT_EQ(resized.height, c.resized_height) << c.width << "x" << c.height;
  }
}

TEST(SmartResize, TreatsBothSidesAlike) {
  for (const ResizeCase& c : kResizeCases) {
    const ImageSize resized =
        smart_resize({c.height, c.width}, c.factor, c.min_pixels, c.max_pixels);
    EXPECT_EQ(resized.width, c.resized_height);
    EXPECT_EQ(resized.height, c.resized_width);
  }
}

TEST(SmartResize, RefusesImpossibleSizes) {
  EXPECT_THROW(smart_resize({0, 10}, 28, 3136, 1003520), InvalidInput);
  EXPECT_THROW(smart_resize({10, -1}, 28, 3136, 1003520), InvalidInput);
  EXPECT_THROW(smart_resize({10, 2001}, 28, 3136, 1003520), InvalidInput);
  EXPECT_THROW(smart_resize({1 << 25, 1 << 25}, 28, 3136, 1003520), InvalidInput);
  EXPECT_NO_THROW(smart_resize({10, 2000}, 28, 3136, 1003520));
  const std::string message = error_of<InvalidInput>([] {
    smart_resize({10, 2001}, 28, 3136, 1003520);
  });
  EXPECT_NE(message.find("10x2001"), std::string::npos) << message;
  EXPECT_NE(message.find("200"), std::string::npos) << message;
}

EncoderSpec vision() {
  EncoderSpec encoder;
  encoder.name = "vision";
  return encoder;
}

EncoderSpec audio() {
  EncoderSpec encoder;
  encoder.name = "audio";
  encoder.modality = Modality::kAudio;
  return encoder;
}

ModelSpec model_of(std::vector<EncoderSpec> encoders) {
  ModelSpec model;
  model.encoders = std::move(encoders);
  return model;
}

SampleSizes text_sample(std::int64_t prompt, std::int64_t response) {
  SampleSizes sizes;
  sizes.id = "s1";
  sizes.prompt_tokens_estimate = prompt;
  sizes.response_tokens_estimate = response;
  return sizes;
}

TEST(SampleWork, CountsImagesAsSegments) {
  SampleSizes sizes = text_sample(10, 5);
  sizes.images = {{640, 480}, {28, 28}};
  const SampleWork work = sample_work(model_of({vision()}), sizes);
  // 644x476 are 46x34 patches of 14 pixels.
  ASSERT_EQ(work.segments.size(), 1U);
  EXPECT_EQ(work.segments[0],
            (std::vector<SegmentWork>{{1564, 1564 * 1564, 391, 34, 46}, {16, 256, 4, 4, 4}}));
  EXPECT_EQ(work.llm_tokens, 10 + 5 + 391 + 4);
  EXPECT_EQ(work.llm_attention_pairs, 410 * 410 / 2);
  EXPECT_EQ(work.target_tokens, 5);
}

TEST(SampleWork, MergesByTheModelsMergeSize) {
  EncoderSpec encoder = vision();
  encoder.patch_size = 8;
  encoder.merge_size = 4;
  encoder.min_pixels = 1;
  SampleSizes sizes = text_sample(0, 1);
  sizes.images = {{64, 96}};
  const SampleWork work = sample_work(model_of({encoder}), sizes);
  EXPECT_EQ(work.segments[0], (std::vector<SegmentWork>{{96, 96 * 96, 6, 12, 8}}));
}

TEST(SampleWork, CountsPairsWithinWindows) {
  EncoderSpec encoder = vision();
  SampleSizes sizes = text_sample(0, 1);
  sizes.images = {{252, 140}, {112, 112}, {56, 56}};
  EXPECT_EQ(sample_work(model_of({encoder}), sizes).segments[0][0].window_pairs, 0) << "no windows";
  encoder.window_size = 112;
  const SampleWork work = sample_work(model_of({encoder}), sizes);
  // Rows 8 + 2; columns 8 + 8 + 2.
  EXPECT_EQ(work.segments[0][0].window_pairs, (64 + 4) * (64 + 64 + 4));
  EXPECT_EQ(work.segments[0][1].window_pairs, 64 * 64);
  EXPECT_EQ(work.segments[0][2], (SegmentWork{16, 256, 4, 4, 4, 256})) << "less than a window";
}

TEST(SampleWork, CountsPairsOfEveryPatchWithItsWindow) {
  EncoderSpec encoder = vision();
  for (int rows = 2; rows <= 40; rows += 2) {
    for (const int window : {2, 4, 8, 64}) {
      constexpr int kColumns = 26;
      encoder.window_size = window * encoder.patch_size;
      SampleSizes sizes = text_sample(0, 1);
      sizes.images = {{kColumns * encoder.patch_size, rows * encoder.patch_size}};
      std::int64_t expected = 0;
      for (int patch = 0; patch < rows * kColumns; ++patch) {
        for (int other = 0; other < rows * kColumns; ++other) {
          expected += patch / kColumns / window == other / kColumns / window &&
                      patch % kColumns / window == other % kColumns / window;
        }
      }
      EXPECT_EQ(sample_work(model_of({encoder}), sizes).segments[0][0].window_pairs, expected)
          << rows << " rows, windows of " << window;
    }
  }
}

TEST(SampleWork, RoundsOddAttentionPairsDown) {
  const SampleWork work = sample_work(model_of({}), text_sample(2, 1));
  EXPECT_EQ(work.llm_tokens, 3);
  EXPECT_EQ(work.llm_attention_pairs, 4);
  EXPECT_TRUE(work.segments.empty());
}

TEST(SampleWork, PrefersExactTextTokens) {
  SampleSizes sizes = text_sample(10, 5);
  sizes.prompt_tokens = 20;
  EXPECT_EQ(sample_work(model_of({}), sizes).llm_tokens, 15) << "one exact count is not enough";
  sizes.response_tokens = 7;
  const SampleWork work = sample_work(model_of({}), sizes);
  EXPECT_EQ(work.llm_tokens, 27);
  EXPECT_EQ(work.target_tokens, 7);
}

TEST(SampleWork, LeavesOutModalitiesWithoutAnEncoder) {
  SampleSizes sizes = text_sample(10, 5);
  sizes.images = {{640, 480}};
  sizes.audio_seconds = {2.0};
  sizes.videos = {{4.0, {}, {}}};
  const SampleWork only_audio = sample_work(model_of({audio()}), sizes);
  EXPECT_EQ(only_audio.segments[0].size(), 1U);
  EXPECT_EQ(only_audio.llm_tokens, 15 + 50);
  EXPECT_EQ(sample_work(model_of({}), sizes).llm_tokens, 15);
}

// Frames with sound, tokens, frames that the tokens are computed from: of a window of 20, and
// of 15.
TEST(InputFrames, HaveOneAfterThoseOfMaskedTokens) {
  EncoderSpec encoder = audio();
  encoder.masked_padding = true;
  for (const auto& [window, real, tokens, frames] :
       std::vector<std::array<std::int64_t, 4>>{{20, 1, 1, 3},
                                                {20, 2, 1, 3},
                                                {20, 7, 4, 9},
                                                {20, 18, 9, 19},
                                                {20, 19, 10, 20},
                                                {20, 20, 10, 20},
                                                {15, 14, 7, 15},
                                                {15, 15, 8, 15}}) {
    encoder.window_seconds = static_cast<double>(window) / 100;
    EXPECT_EQ(input_frames(encoder, real), frames) << real;
    EXPECT_TRUE(fits_input(encoder, frames, tokens)) << real;
    EXPECT_FALSE(fits_input(encoder, frames - 1, tokens)) << real;
  }
  encoder.masked_padding = false;
  EXPECT_EQ(input_frames(encoder, 7), 7);
  EXPECT_TRUE(fits_input(encoder, 7, 4) && fits_input(encoder, 8, 4));
  EXPECT_FALSE(fits_input(encoder, 9, 4));
  encoder.pad_windows = true;
  EXPECT_EQ(input_frames(encoder, 7), 15);
  EXPECT_EQ(window_tokens(encoder), 8);
}

TEST(SampleWork, KeepsEncodersInTheModelsOrder) {
  SampleSizes sizes = text_sample(0, 1);
  sizes.images = {{28, 28}};
  sizes.audio_seconds = {1.0, 2.0};
  const SampleWork work = sample_work(model_of({audio(), vision()}), sizes);
  ASSERT_EQ(work.segments.size(), 2U);
  EXPECT_EQ(work.segments[0].size(), 2U);
  EXPECT_EQ(work.segments[1].size(), 1U);
  EXPECT_EQ(work.llm_tokens, 1 + 25 + 50 + 4);
}

// Seconds, window, padded → windows, tokens of the first and last, LLM tokens of the last and of
// all, from an independent implementation in decimal arithmetic. 1.1, 79.4 and 80.9 are the ones
// whose product with 100 lies above the whole number in binary.
struct AudioCase {
  double seconds, window_seconds;
  bool padded;
  std::size_t windows;
  std::int64_t first_tokens, last_tokens, last_llm_tokens, llm_tokens;
};
const std::vector<AudioCase> kAudioCases = {
    {0.01, 30, false, 1, 1, 1, 0, 0},
    {0.02, 30, false, 1, 1, 1, 0, 0},
    {0.03, 30, false, 1, 2, 2, 1, 1},
    {0.04, 30, false, 1, 2, 2, 1, 1},
    {0.05, 30, true, 1, 1500, 1500, 1, 1},
    {1.1, 30, false, 1, 55, 55, 27, 27},
    {1.1, 30, true, 1, 1500, 1500, 27, 27},
    {1.105, 30, false, 1, 56, 56, 28, 28},
    {2.3, 30, false, 1, 115, 115, 57, 57},
    {16.04, 30, true, 1, 1500, 1500, 401, 401},
    {30, 30, false, 1, 1500, 1500, 750, 750},
    {30.0, 30, true, 1, 1500, 1500, 750, 750},
    {30.001, 30, false, 2, 1500, 1, 0, 750},
    {30.001, 30, true, 2, 1500, 1500, 0, 750},
    {29.99, 30, false, 1, 1500, 1500, 750, 750},
    {29.995, 30, false, 1, 1500, 1500, 750, 750},
    {60, 30, false, 2, 1500, 1500, 750, 1500},
    {61.53, 30, false, 3, 1500, 77, 38, 1538},
    {61.53, 30, true, 3, 1500, 1500, 38, 1538},
    {7.29, 30, false, 1, 365, 365, 182, 182},
    {14.085, 30, false, 1, 705, 705, 352, 352},
    {35.0, 30, true, 2, 1500, 1500, 125, 875},
    {31.03, 8, false, 4, 400, 352, 176, 776},
    {18.4, 12.5, false, 2, 625, 295, 147, 459},
    {27.8, 30, false, 1, 1390, 1390, 695, 695},
    {94.971, 0.1, false, 950, 5, 4, 2, 1900},
    {13.9, 8, false, 2, 400, 295, 147, 347},
    {62.840, 30, false, 3, 1500, 142, 71, 1571},
    {80.9, 0.1, false, 809, 5, 5, 2, 1618},
    {79.4, 0.1, true, 794, 5, 5, 2, 1588},
    {16.49, 30, true, 1, 1500, 1500, 412, 412},
    {48.2, 30, false, 2, 1500, 910, 455, 1205},
    {17.45, 0.1, true, 175, 5, 5, 1, 349},
    {11.23, 8, false, 2, 400, 162, 81, 281},
    {74.000, 0.1, true, 740, 5, 5, 2, 1480},
    {44.671, 0.1, false, 447, 5, 4, 2, 894},
    {18.3, 30, true, 1, 1500, 1500, 457, 457},
    {80.3, 8, true, 11, 400, 400, 7, 2007},
};

TEST(SampleWork, CutsAudioIntoGoldenWindows) {
  for (const AudioCase& c : kAudioCases) {
    EncoderSpec encoder = audio();
    encoder.window_seconds = c.window_seconds;
    encoder.pad_windows = c.padded;
    SampleSizes sizes = text_sample(0, 0);
    sizes.audio_seconds = {c.seconds};
    const SampleWork work = sample_work(model_of({encoder}), sizes);
    const std::vector<SegmentWork>& segments = work.segments[0];
    ASSERT_EQ(segments.size(), c.windows) << c.seconds << " s";
    EXPECT_EQ(segments.front().tokens, c.first_tokens) << c.seconds << " s";
    EXPECT_EQ(segments.back().tokens, c.last_tokens) << c.seconds << " s";
    EXPECT_EQ(segments.back().attention_pairs, c.last_tokens * c.last_tokens);
    EXPECT_EQ(segments.back().llm_tokens, c.last_llm_tokens) << c.seconds << " s";
    EXPECT_EQ(work.llm_tokens, c.llm_tokens) << c.seconds << " s";
  }
}

// Seconds, frames per second → segments.
struct VideoCase {
  double seconds, frames_per_second;
  std::size_t segments;
};
const std::vector<VideoCase> kVideoCases = {
    {0.1, 2, 1},
    {1, 2, 1},
    {1.5, 2, 2},
    {2.3, 2, 3},
    {1.1, 30, 17},
    {10, 0.5, 3},
    {3, 1, 2},
    {60.2, 2, 61},
    {0.7, 10, 4},
    {2.01, 100, 101},
};

TEST(SampleWork, PairsVideoFramesIntoSegments) {
  for (const VideoCase& c : kVideoCases) {
    EncoderSpec encoder = vision();
    encoder.frames_per_second = c.frames_per_second;
    SampleSizes sizes = text_sample(0, 0);
    sizes.videos = {{c.seconds, std::nullopt, ImageSize{56, 84}}};
    const SampleWork work = sample_work(model_of({encoder}), sizes);
    const std::vector<SegmentWork> expected(c.segments, SegmentWork{24, 576, 6, 6, 4});
    EXPECT_EQ(work.segments[0], expected) << c.seconds << " s";
    EXPECT_EQ(work.llm_tokens, static_cast<std::int64_t>(6 * c.segments));
  }
}

TEST(SampleWork, TakesTheDefaultFrameWhereTheSizeIsUnknown) {
  SampleSizes sizes = text_sample(0, 0);
  sizes.videos = {{1.0, 25, std::nullopt}};
  EncoderSpec encoder = vision();
  // 640x360 becomes 644x364.
  EXPECT_EQ(sample_work(model_of({encoder}), sizes).segments[0],
            (std::vector<SegmentWork>{{46 * 26, 46 * 26 * 46 * 26, 23 * 13, 26, 46}}));
  encoder.default_frame_width = 56;
  encoder.default_frame_height = 84;
  EXPECT_EQ(sample_work(model_of({encoder}), sizes).segments[0].front().tokens, 24);
}

TEST(SampleWork, TakesImagesBeforeVideos) {
  SampleSizes sizes = text_sample(0, 0);
  sizes.videos = {{1.0, std::nullopt, ImageSize{56, 84}}};
  sizes.images = {{56, 56}};
  const SampleWork work = sample_work(model_of({vision()}), sizes);
  EXPECT_EQ(work.segments[0], (std::vector<SegmentWork>{{16, 256, 4, 4, 4}, {24, 576, 6, 6, 4}}));
}

// Images of 28 pixels a side: sixteen patches and a class token.
ModelSpec tiling_model(TilingSpec::Kind kind, int merge_size) {
  EncoderSpec vision;
  vision.name = "vision";
  vision.patch_size = 7;
  vision.merge_size = merge_size;
  vision.table_side = 4;
  vision.class_token = true;
  vision.tiling.kind = kind;
  vision.tiling.canvases = {{1, 2}, {2, 1}};
  ModelSpec model;
  model.encoders = {vision};
  return model;
}

TEST(SampleWork, CountsTilesAsSegments) {
  const ModelSpec model = tiling_model(TilingSpec::Kind::kBestCanvas, 2);
  SampleSizes sizes;
  sizes.images = {{28, 28}, {200, 100}};
  sizes.prompt_tokens = 10;
  sizes.response_tokens = 2;
  const SampleWork work = sample_work(model, sizes);
  ASSERT_EQ(work.segments[0].size(), 1U + 8 + 1);  // of 2:1 the largest with half of the pixels
  for (const SegmentWork& segment : work.segments[0]) {
    EXPECT_EQ(segment.tokens, 17);
    EXPECT_EQ(segment.llm_tokens, 4);
    EXPECT_EQ(segment.rows, 4);
  }
  EXPECT_EQ(work.llm_tokens, 12 + 10 * 4);
  std::vector<SegmentPlace> expected = {{0, 0}};
  for (int tile = 0; tile < 9; ++tile) {
    expected.push_back({1, tile});
  }
  EXPECT_EQ(segment_places(model.encoders[0], sizes), expected);
}

TEST(SampleWork, CountsTilesOfAnyResolutionAsOneSegment) {
  const ModelSpec model = tiling_model(TilingSpec::Kind::kAnyResolution, 1);
  SampleSizes sizes;
  sizes.images = {{56, 28}, {10, 40}};
  sizes.prompt_tokens = 10;
  sizes.response_tokens = 2;
  const SampleWork work = sample_work(model, sizes);
  ASSERT_EQ(work.segments[0].size(), 2U);
  const SegmentWork& wide = work.segments[0][0];
  EXPECT_EQ(wide.tokens, 3 * 17);
  EXPECT_EQ(wide.attention_pairs, 3 * 17 * 17);
  EXPECT_EQ(wide.llm_tokens, 16 + 4 * (8 + 1));
  EXPECT_EQ(wide.rows, 4);
  EXPECT_EQ(wide.canvas.tiles, (ImageTiles{1, 2, true}));
  const SegmentWork& tall = work.segments[0][1];  // 8 rows of features, of 4 columns the middle 2
  EXPECT_EQ(tall.llm_tokens, 16 + 8 * (2 + 1));
  EXPECT_EQ(work.llm_tokens, 12 + wide.llm_tokens + tall.llm_tokens);
  EXPECT_EQ(segment_places(model.encoders[0], sizes), (std::vector<SegmentPlace>{{0, 0}, {1, 0}}));
  EXPECT_TRUE(fits_input(model.encoders[0], 3 * 16, wide.tokens));
  EXPECT_FALSE(fits_input(model.encoders[0], 2 * 16, wide.tokens));
}

TEST(SegmentPlaces, CountImagesThenVideosThenClips) {
  EncoderSpec vision;
  EncoderSpec audio;
  audio.modality = Modality::kAudio;
  audio.window_seconds = 1.0;
  SampleSizes sizes;
  sizes.images = {{56, 56}, {56, 56}};
  sizes.videos = {{1.5, {}, ImageSize{56, 56}}};  // three frames
  sizes.audio_seconds = {1.5};
  EXPECT_EQ(segment_places(vision, sizes),
            (std::vector<SegmentPlace>{{0, 0}, {1, 0}, {2, 0}, {2, 1}}));
  EXPECT_EQ(segment_places(audio, sizes), (std::vector<SegmentPlace>{{3, 0}, {3, 1}}));
}

TEST(SampleWork, NamesTheSampleOfAnImpossibleSize) {
  const ModelSpec model = model_of({vision(), audio()});
  const auto expect_refused = [&](const std::function<void(SampleSizes&)>& spoil,
                                  const std::string& part) {
    SampleSizes sizes = text_sample(3, 4);
    spoil(sizes);
    const std::string message = error_of<InvalidInput>([&] { sample_work(model, sizes); });
    EXPECT_EQ(message.rfind("sample 's1': ", 0), 0U) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_refused([](SampleSizes& s) { s.images = {{0, 4}}; }, "0x4");
  expect_refused([](SampleSizes& s) { s.images = {{4, 4000}}; }, "aspect ratio");
  expect_refused([](SampleSizes& s) { s.audio_seconds = {-1.0}; }, "-1 s");
  expect_refused([](SampleSizes& s) { s.audio_seconds = {0.0}; }, "audio clip");
  expect_refused([](SampleSizes& s) { s.audio_seconds = {1e300}; }, "audio clip");
  expect_refused(
      [](SampleSizes& s) { s.audio_seconds = {std::numeric_limits<double>::quiet_NaN()}; },
      "audio clip");
  expect_refused([](SampleSizes& s) { s.videos = {{-2.0, {}, {}}}; }, "a video of -2 s");
  expect_refused([](SampleSizes& s) { s.prompt_tokens_estimate = -1; }, "-1 prompt");
  expect_refused([](SampleSizes& s) { s.response_tokens_estimate = std::int64_t{1} << 40U; },
                 "response");
}

TEST(SampleWork, AllowsASampleWithoutAnyTokens) {
  const SampleWork work = sample_work(model_of({vision()}), text_sample(0, 0));
  EXPECT_EQ(work.llm_tokens, 0);
  EXPECT_TRUE(work.segments[0].empty());
}

TEST(FirstFeatureToken, CountsFeaturesOfEarlierSegmentsOfItsEncoder) {
  SampleWork work;
  work.segments = {{{.llm_tokens = 3}, {.llm_tokens = 4}}, {{.llm_tokens = 0}, {.llm_tokens = 5}}};
  EXPECT_EQ(first_feature_token(work, 0, 0), 0);
  EXPECT_EQ(first_feature_token(work, 0, 1), 3);
  EXPECT_EQ(first_feature_token(work, 1, 0), 0) << "clips may be before images";
  EXPECT_EQ(first_feature_token(work, 1, 1), 0);
}

TEST(FirstFeatureToken, OfAVideoDoesNotWaitForImages) {
  SampleWork work;
  work.segments = {{{.llm_tokens = 3}, {.llm_tokens = 4}, {.llm_tokens = 5}, {.llm_tokens = 6}}};
  work.videos = {{{.frames = 3, .size = {}}}};  // two temporal patches
  EXPECT_EQ(first_feature_token(work, 0, 1), 3);
  EXPECT_EQ(first_feature_token(work, 0, 2), 0) << "the video may be the first";
  EXPECT_EQ(first_feature_token(work, 0, 3), 5);
}

}  // namespace
}  // namespace entrain
