// SampleReader alone: what one sample gives, and what is refused. How samples are read ahead, and
// the refusals that a whole run meets, are in read_ahead_test.cc.
#include "entrain/engine/data/sample_reader.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

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

  SampleReader reader(bool blank_images = false) { return {index_, model_, blank_images}; }

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
  EXPECT_EQ(first.patches.sizes(), (std::vector<std::int64_t>{8, 48}));
  EXPECT_EQ(first.patches[0][0].item<float>(), 1.0F);    // red
  EXPECT_EQ(first.patches[0][16].item<float>(), -1.0F);  // green
  const SegmentData second = one.segment(0, 0, 1);
  EXPECT_EQ(second.rows, 6);
  EXPECT_EQ(second.columns, 2);
  EXPECT_EQ(second.patches[0][16].item<float>(), 1.0F);
  // More than max_pixels: made smaller, flat as it was.
  const SegmentData third = one.segment(1, 0, 0);
  EXPECT_EQ(third.rows, 8);
  EXPECT_EQ(third.columns, 8);
  EXPECT_FLOAT_EQ(third.patches[63][47].item<float>(), 1.0F);
}

TEST_F(SampleReaderTest, TextsFollowTheTemplate) {
  SampleReader one = reader();
  const SampleTokens pair = one.text(0);
  // <bos> <user>, then an image of 2 features and one of 3, each between its marks.
  std::vector<std::int64_t> expected = {kBosToken, kUserToken};
  for (const int features : {2, 3}) {
    expected.push_back(kImageStartToken);
    expected.insert(expected.end(), static_cast<std::size_t>(features), kImageToken);
    expected.push_back(kImageEndToken);
  }
  for (const std::int64_t token :
       std::initializer_list<std::int64_t>{'q', kAssistantToken, 'y', 'e', 's', kEosToken}) {
    expected.push_back(token);
  }
  EXPECT_EQ(pair.tokens.ids, expected);
  EXPECT_EQ(pair.tokens.feature_begin, (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(pair.tokens.target_begin, 13);
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
  SampleReader blank = reader(/*blank_images=*/true);
  const SegmentData segment = blank.segment(0, 0, 1);
  EXPECT_EQ(segment.rows, 6);
  EXPECT_TRUE(at::equal(segment.patches, at::ones({12, 48})));
}

TEST_F(SampleReaderTest, RefusesAnIndexThatIsNotTheShards) {
  index_.samples[0].images.push_back({8, 8});
  SampleReader one = reader();
  const std::string message = error_of<InvalidInput>([&] { one.segment(0, 0, 2); });
  EXPECT_NE(message.find("sample 'train/a'"), std::string::npos) << message;
  EXPECT_NE(message.find("the shard has 2 images, the index says 3; make the index anew"),
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

}  // namespace
}  // namespace entrain::engine
