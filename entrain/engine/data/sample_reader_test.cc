// SampleReader alone: what one sample gives, and what is refused. How samples are read ahead, and
// the refusals that a whole run meets, are in read_ahead_test.cc.
#include "entrain/engine/data/sample_reader.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/audio.h"

#include "entrain/engine/data/log_mel.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

class SampleReaderTest : public testing::Test {
 protected:
  SampleReaderTest() {
    EncoderSpec vision;
    vision.name = "vision";
    vision.num_layers = 1;
    vision.hidden = 8;
    vision.num_heads = 1;
    vision.intermediate = 8;
    vision.patch_size = 4;
    vision.merge_size = 2;
    vision.min_pixels = 64;
    vision.max_pixels = 1024;
    model_.encoders = {vision};
    model_.llm.num_layers = 1;
    oracle::TarWriter tar;
    tar.add("a.0.png", oracle::flat_png(16, 8, 255, 0, 0));
    tar.add("a.1.png", oracle::flat_png(8, 24, 0, 255, 0));
    tar.add("a.json", R"({"question": "q", "answer": "yes", "kind": "pair", "source": "made"})");
    tar.add("b.png", oracle::flat_png(64, 64, 0, 0, 255));
    tar.add("b.json", R"({"prompt": "p", "response": "no", "source": "made"})");
    tar.add("c.json", R"({"caption": "text", "kind": 7})");
    shard_ = folder_.write("train-0.tar", tar.archive());
    index_ = build_index({shard_}, folder_.path() / "train.csv", {}).index;
  }

  SampleReader reader(bool blank = false) { return {index_, model_, blank}; }

  oracle::TemporaryFolder folder_;
  std::filesystem::path shard_;
  Index index_;
  ModelSpec model_;
};

TEST_F(SampleReaderTest, CutsEachImageOfItsOwnSize) {
  SampleReader one = reader();
  const SegmentData first = one.segment(0, 0, 0);
  EXPECT_EQ(first.rows, 2);
  EXPECT_EQ(first.columns, 4);
  EXPECT_EQ(first.input.sizes(), (std::vector<std::int64_t>{8, 48}));
  EXPECT_EQ(first.input[0][0].item<float>(), 1.0F);    // red
  EXPECT_EQ(first.input[0][16].item<float>(), -1.0F);  // green
  const SegmentData second = one.segment(0, 0, 1);
  EXPECT_EQ(second.rows, 6);
  EXPECT_EQ(second.columns, 2);
  EXPECT_EQ(second.input[0][16].item<float>(), 1.0F);
  // More than max_pixels: made smaller, flat as it was.
  const SegmentData third = one.segment(1, 0, 0);
  EXPECT_EQ(third.rows, 8);
  EXPECT_EQ(third.columns, 8);
  EXPECT_FLOAT_EQ(third.input[63][47].item<float>(), 1.0F);
}

TEST_F(SampleReaderTest, TextsFollowTheTemplate) {
  SampleReader one = reader();
  const SampleTokens pair = one.text(0);
  // <bos> <user>, then an image of 2 features and one of 3, each between its marks.
  std::vector<std::int64_t> expected = {kBosToken, kUserToken};
  for (const int features : {2, 3}) {
    expected.push_back(kImageStartToken);
    expected.insert(expected.end(), static_cast<std::size_t>(features), kFeatureToken);
    expected.push_back(kImageEndToken);
  }
  for (const std::int64_t token :
       std::initializer_list<std::int64_t>{'q', kAssistantToken, 'y', 'e', 's', kEosToken}) {
    expected.push_back(token);
  }
  EXPECT_EQ(pair.tokens.ids, expected);
  EXPECT_EQ(pair.tokens.feature_begin, (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(pair.tokens.targets.front().begin, 13);
}

TEST_F(SampleReaderTest, KindIsTheSampleOwnElseItsSource) {
  SampleReader one = reader();
  EXPECT_EQ(one.text(0).kind, "pair");
  EXPECT_EQ(one.text(1).kind, "made");
  EXPECT_EQ(one.text(2).kind, "");  // no string, and no source
}

TEST_F(SampleReaderTest, ReadsASampleOnceForAllItsPieces) {
  SampleReader one = reader();
  one.segment(0, 0, 0);
  std::filesystem::remove(shard_);
  EXPECT_NO_THROW(one.segment(0, 0, 1));
  EXPECT_NO_THROW(one.text(0));
  EXPECT_NE(error_of<InvalidInput>([&] { one.text(1); }).find("train-0.tar"), std::string::npos);
  error_of<InvalidInput>([&] { one.text(1); });  // still not there, and not taken for read
}

TEST_F(SampleReaderTest, BlankImagesNeedNoShard) {
  std::filesystem::remove(shard_);
  SampleReader blank = reader(/*blank=*/true);
  const SegmentData segment = blank.segment(0, 0, 1);
  EXPECT_EQ(segment.rows, 6);
  EXPECT_TRUE(at::equal(segment.input, at::ones({12, 48})));
}

TEST_F(SampleReaderTest, RefusesAnIndexThatIsNotTheShards) {
  index_.samples[0].images.push_back({8, 8});
  SampleReader one = reader();
  const std::string message = error_of<InvalidInput>([&] { one.segment(0, 0, 2); });
  EXPECT_NE(message.find("sample 'train/a'"), std::string::npos) << message;
  EXPECT_NE(message.find("the data have 2 images, the index says 3; make the index again"),
            std::string::npos)
      << message;
  index_.samples[1].response_tokens = 5;
  const std::string response = error_of<InvalidInput>([&] { one.text(1); });
  EXPECT_NE(response.find("a response of 3 tokens, the index says 5"), std::string::npos)
      << response;
}

TEST_F(SampleReaderTest, NoticesSamplesThatAreNotInTheIndex) {
  SampleReader one = reader();
  const std::string message = error_of<InternalError>([&] { one.text(3); });
  EXPECT_NE(message.find("sample 3 of an index of 3"), std::string::npos) << message;
}

// A model whose vision encoder takes 8 × 8 pixels and cuts tiles of them.
TEST_F(SampleReaderTest, CutsAnImageIntoTilesThatFollowEachOther) {
  EncoderSpec& vision = model_.encoders[0];
  vision.table_side = 2;
  vision.tiling.kind = TilingSpec::Kind::kBestCanvas;
  oracle::TarWriter tar;
  tar.add("a.0.png", oracle::flat_png(16, 8, 255, 0, 0));
  tar.add("a.1.png", oracle::flat_png(8, 8, 0, 255, 0));
  tar.add("a.json", R"({"question": "q", "answer": "yes"})");
  shard_ = folder_.write("tiles-0.tar", tar.archive());
  index_ = build_index({shard_}, folder_.path() / "tiles.csv", {}).index;
  SampleReader one = reader();
  // Two tiles of 16 x 8, the whole, and the second image.
  for (int tile = 0; tile < 4; ++tile) {
    const SegmentData data = one.segment(0, 0, tile);
    EXPECT_EQ(data.input.sizes(), (std::vector<std::int64_t>{4, 48}));
    EXPECT_EQ(data.input[0][0].item<float>(), tile < 3 ? 1.0F : -1.0F) << tile;
    EXPECT_EQ(data.decoded_images, tile == 0 || tile == 3 ? 1 : 0) << tile;
    EXPECT_TRUE(at::equal(reader(/*blank=*/true).segment(0, 0, tile).input, at::ones({4, 48})));
  }
  const TokenizedSample text = one.text(0).tokens;
  EXPECT_EQ(text.feature_begin, (std::vector<std::int64_t>{3, 4, 5, 8}));
  EXPECT_EQ(std::count(text.ids.begin(), text.ids.end(), kFeatureToken), 4);
}

// The same as one segment of all tiles, if the sample has one image; else each image whole.
TEST_F(SampleReaderTest, ReadsTheTilesOfACanvasAsOneSegment) {
  EncoderSpec& vision = model_.encoders[0];
  vision.table_side = 2;
  vision.merge_size = 1;
  vision.tiling.kind = TilingSpec::Kind::kAnyResolution;
  vision.tiling.canvases = {{1, 2}, {2, 1}};
  vision.tiling.single_image = true;
  oracle::TarWriter tar;
  tar.add("a.png", oracle::flat_png(16, 8, 255, 0, 0));
  tar.add("a.json", R"({"question": "q", "answer": "yes"})");
  tar.add("b.0.png", oracle::flat_png(16, 8, 255, 0, 0));
  tar.add("b.1.png", oracle::flat_png(8, 8, 0, 255, 0));
  tar.add("b.json", R"({"question": "q", "answer": "yes"})");
  shard_ = folder_.write("canvas-0.tar", tar.archive());
  index_ = build_index({shard_}, folder_.path() / "canvas.csv", {}).index;
  SampleReader one = reader();
  EXPECT_EQ(one.segment(0, 0, 0).input.sizes(), (std::vector<std::int64_t>{3 * 4, 48}));
  EXPECT_TRUE(at::equal(reader(/*blank=*/true).segment(0, 0, 0).input, at::ones({3 * 4, 48})));
  EXPECT_EQ(one.segment(1, 0, 1).input.sizes(), (std::vector<std::int64_t>{4, 48}));
  const TokenizedSample alone = one.text(0).tokens;
  EXPECT_EQ(std::count(alone.ids.begin(), alone.ids.end(), kFeatureToken), 4 + 2 * (4 + 1));
  const TokenizedSample both = one.text(1).tokens;
  EXPECT_EQ(std::count(both.ids.begin(), both.ids.end(), kFeatureToken), 2 * (4 + 1));
  EXPECT_EQ(both.feature_begin[1] - both.feature_begin[0], 5 + 2);  // a mark behind, one before
}

class VideoReaderTest : public SampleReaderTest {
 protected:
  VideoReaderTest() {
    EncoderSpec& vision = model_.encoders[0];
    vision.temporal_patch_size = 2;
    vision.video.sampling = VideoSpec::Sampling::kAll;
  }

  // Frames of rising red; the index of their sample, beside an image.
  void index_video(int num_frames, const std::string& json) {
    oracle::TarWriter tar;
    tar.add("a.png", oracle::flat_png(16, 8, 0, 255, 0));
    for (int frame = 0; frame < num_frames; ++frame) {
      tar.add(concat("a.0.", frame, ".png"),
              oracle::flat_png(16, 16, static_cast<std::uint8_t>(50 * frame), 0, 0));
    }
    tar.add("a.json", json);
    shard_ = folder_.write("video-0.tar", tar.archive());
    index_ = build_index({shard_}, folder_.path() / "video.csv", {}).index;
  }
};

TEST_F(VideoReaderTest, PairsFramesAndRepeatsTheLastOfAnOddNumber) {
  index_video(5, R"({"text": "no", "fps": 2})");
  EXPECT_EQ(index_.samples[0].videos, (std::vector<VideoSize>{{2.5, 5, ImageSize{16, 16}}}));
  SampleReader one = reader();
  EXPECT_EQ(one.segment(0, 0, 0).rows, 2);
  EXPECT_EQ(one.segment(0, 0, 1).decoded_images, 2);
  const auto red = [&](int segment, int frame) {
    const SegmentData data = one.segment(0, 0, segment);
    EXPECT_EQ(data.input.sizes(), (std::vector<std::int64_t>{16, 96}));
    return (data.input[0][16 * frame].item<float>() + 1.0F) * 127.5F;
  };
  for (int segment = 1; segment <= 3; ++segment) {
    EXPECT_NEAR(red(segment, 0), 100.0F * static_cast<float>(segment - 1), 1e-3F);
    EXPECT_NEAR(red(segment, 1), segment == 3 ? 200.0F : red(segment, 0) + 50.0F, 1e-3F);
  }
  // Image of 2 features; video of three times 4 between its own marks.
  EXPECT_EQ(one.text(0).tokens.feature_begin, (std::vector<std::int64_t>{3, 7, 11, 15}));
  EXPECT_TRUE(at::equal(reader(/*blank=*/true).segment(0, 0, 3).input, at::ones({16, 96})));
}

TEST_F(VideoReaderTest, RefusesAModelThatReadsNone) {
  index_video(4, R"({"text": "no", "fps": 2})");
  model_.encoders[0].video = {};
  SampleReader one = reader();
  const std::string message = error_of<InvalidInput>([&] { one.segment(0, 0, 1); });
  EXPECT_NE(message.find("has video for encoder 'vision'"), std::string::npos) << message;
}

TEST_F(VideoReaderTest, RefusesAnIndexThatIsNotTheShards) {
  index_video(4, R"({"text": "no", "fps": 2})");
  index_.samples[0].videos[0].frames = 6;
  SampleReader one = reader();
  const std::string message = error_of<InvalidInput>([&] { one.segment(0, 0, 1); });
  EXPECT_NE(message.find("video 0: the data have 4 frames, the index says 6"), std::string::npos)
      << message;
}

class SoundReaderTest : public testing::Test {
 protected:
  SoundReaderTest() {
    EncoderSpec audio;
    audio.name = "audio";
    audio.modality = Modality::kAudio;
    audio.num_layers = 1;
    audio.hidden = 8;
    audio.num_heads = 1;
    audio.intermediate = 8;
    audio.window_seconds = 0.1;
    EncoderSpec vision = audio;
    vision.name = "vision";
    vision.modality = Modality::kVision;
    vision.patch_size = 4;
    vision.min_pixels = 64;
    vision.max_pixels = 1024;
    model_.encoders = {audio, vision};
    model_.llm.num_layers = 1;
    std::vector<double> tone;
    for (int i = 0; i < 2'000; ++i) {
      tone.push_back(0.5 * std::sin(0.2 * i));
    }
    oracle::TarWriter tar;
    tar.add("a.png", oracle::flat_png(16, 8, 255, 0, 0));
    tar.add("a.0.wav", oracle::make_wav(tone, {.sample_rate = 8'000}));  // 0.25 s
    tar.add("a.1.flac", oracle::make_flac({tone.begin(), tone.begin() + 1'000}));
    tar.add("a.json", R"({"text": "no"})");
    shard_ = folder_.write("train-0.tar", tar.archive());
    index_ = build_index({shard_}, folder_.path() / "train.csv", {}).index;
  }

  oracle::TemporaryFolder folder_;
  std::filesystem::path shard_;
  Index index_;
  ModelSpec model_;
};

TEST_F(SoundReaderTest, CutsClipsIntoWindowsAtTheRateOfTheModel) {
  EXPECT_EQ(index_.samples[0].audio_seconds, (std::vector<double>{0.25, 0.0625}));
  SampleReader reader(index_, model_, false);
  const RawSample raw = read_sample(located(index_, *index_.samples[0].location), "train/a");
  const std::vector<float> clip =
      resample(decode_audio(raw.audio[0], "x").samples, 8'000, kMelSampleRate);
  std::vector<std::int64_t> frames;
  std::vector<int> decoded;
  for (int window = 0; window < 4; ++window) {
    const SegmentData data = reader.segment(0, 0, window);
    frames.push_back(data.input.size(0));
    decoded.push_back(data.decoded_clips);
  }
  EXPECT_EQ(decoded, (std::vector<int>{1, 0, 0, 1}));
  EXPECT_EQ(frames, (std::vector<std::int64_t>{10, 10, 5, 7}));
  EXPECT_TRUE(
      at::equal(reader.segment(0, 0, 2).input, mel_window(clip, 2, model_.encoders[0]).input));
  EXPECT_EQ(reader.segment(0, 1, 0).rows, 2);
}

TEST_F(SoundReaderTest, TextsMarkClipsAfterImages) {
  const TokenizedSample text = SampleReader(index_, model_, false).text(0).tokens;
  std::vector<std::int64_t> expected = {kBosToken, kUserToken, kImageStartToken};
  expected.insert(expected.end(), 2, kFeatureToken);
  expected.push_back(kImageEndToken);
  for (const int features : {2 + 2 + 1, 2}) {
    expected.push_back(kAudioMarkToken);
    expected.insert(expected.end(), static_cast<std::size_t>(features), kFeatureToken);
    expected.push_back(kAudioMarkToken);
  }
  for (const std::int64_t token :
       std::initializer_list<std::int64_t>{kAssistantToken, 'n', 'o', kEosToken}) {
    expected.push_back(token);
  }
  EXPECT_EQ(text.ids, expected);
  // Audio is module 0: its windows first, the image last.
  EXPECT_EQ(text.feature_begin, (std::vector<std::int64_t>{7, 9, 11, 14, 3}));
}

TEST_F(SoundReaderTest, CachedTokensHaveFeaturesAnywhere) {
  TokenCacheWriter writer;
  // The second clip, the image, then the first clip, each after a word.
  writer.add(index_.samples[0].id, {{5, 6, 7, 8, 9}, {{3, 5}}, {{1, 2}, {2, 0}, {3, 1}}});
  TokenFacts facts;
  facts.vocabulary = 10;
  facts.image_token = 1;
  facts.audio_token = 2;
  index_.text_digest =
      writer.write(token_cache_path(index_.path), facts, std::vector<std::string>(10));
  load_tokens(index_);
  index_.samples[0].prompt_tokens = 3;
  index_.samples[0].response_tokens = 2;
  const TokenizedSample text = SampleReader(index_, model_, false).text(0).tokens;
  EXPECT_EQ(text.ids, (std::vector<std::int64_t>{5, 2, 2, 6, 1, 1, 7, 2, 2, 2, 2, 2, 8, 9}));
  EXPECT_EQ(text.feature_begin, (std::vector<std::int64_t>{7, 9, 11, 1, 4}));
  EXPECT_EQ(text.targets, (std::vector<TokenRange>{{12, 14}}));
  // What the model or the index say must be what the tokens say.
  index_.samples[0].response_tokens = 3;
  EXPECT_NE(error_of<InvalidInput>([&] {
              SampleReader(index_, model_, false).text(0);
            }).find("14 tokens, 2 with loss; the index says 15 and 3"),
            std::string::npos);
  model_.encoders.pop_back();
  EXPECT_NE(error_of<InvalidInput>([&] {
              SampleReader(index_, model_, false).text(0);
            }).find("places for 3 tiles, temporal patches and clips, the model makes 2"),
            std::string::npos);
}

TEST_F(SoundReaderTest, BlankIsSilence) {
  std::filesystem::remove(shard_);
  SampleReader blank(index_, model_, true);
  EXPECT_TRUE(at::equal(blank.segment(0, 0, 3).input, at::full({7, 80}, -1.5)));
}

TEST_F(SoundReaderTest, RefusesAnIndexThatIsNotTheShards) {
  index_.samples[0].audio_seconds[1] = 0.07;
  SampleReader reader(index_, model_, false);
  const std::string message = error_of<InvalidInput>([&] { reader.segment(0, 0, 3); });
  EXPECT_NE(message.find("clip 1: 0.0625 s, the index says 0.07"), std::string::npos) << message;
  index_.samples[0].audio_seconds.pop_back();
  EXPECT_NE(error_of<InvalidInput>([&] {
              reader.segment(0, 0, 0);
            }).find("have 2 clips, the index says 1"),
            std::string::npos);
}

}  // namespace
}  // namespace entrain::engine
