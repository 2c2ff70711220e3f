#include "entrain/core/dataset/shard.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TarWriter;
using oracle::TemporaryFolder;

std::vector<ShardSample> read_all(const TarWriter& writer) {
  const TemporaryFolder folder;
  ShardReader reader(folder.write("train-000001.tar", writer.archive()));
  std::vector<ShardSample> samples;
  while (std::optional<ShardSample> sample = reader.next()) {
    samples.push_back(*sample);
  }
  return samples;
}

std::string refused(const TarWriter& writer) {
  const std::string message = error_of<InvalidInput>([&] { read_all(writer); });
  EXPECT_NE(message.find("train-000001.tar, offset "), std::string::npos) << message;
  return message;
}

TEST(ShardReader, GroupsNeighboursByNameAndOrdersImages) {
  TarWriter writer;
  writer.add("a.png", "1").add("a.json", "{}");
  writer.add("b.json", "{}")
      .add("b.1.JPG", "2")
      .add("b.0.png", "3")
      .add("b.txt", "t")
      .add("b.x.cls", "c");
  writer.add("sub.d/c.json", "{}");
  const std::vector<ShardSample> samples = read_all(writer);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].offset, 0);
  EXPECT_EQ(samples[0].bytes, 2048);
  ASSERT_EQ(samples[1].images.size(), 2U);
  EXPECT_EQ(samples[1].images[0].name, "b.0.png");
  EXPECT_EQ(samples[1].images[1].name, "b.1.JPG");
  EXPECT_EQ(samples[1].ignored, (std::vector<std::string>{".txt", ".x.cls"}));
  EXPECT_EQ(samples[1].offset, 2048);
  EXPECT_EQ(samples[2].name, "sub.d/c");
  EXPECT_TRUE(samples[2].images.empty());
}

TEST(ShardReader, NumbersClipsApartFromImages) {
  TarWriter writer;
  writer.add("a.json", "{}").add("a.1.wav", "1").add("a.png", "2").add("a.0.wav", "3");
  const std::vector<ShardSample> samples = read_all(writer);
  ASSERT_EQ(samples[0].audio.size(), 2U);
  EXPECT_EQ(samples[0].audio[0].name, "a.0.wav");
  EXPECT_EQ(samples[0].images.size(), 1U);
}

TEST(ShardReader, OrdersMoreThanTenImagesByNumber) {
  TarWriter writer;
  writer.add("a.json", "{}");
  for (int i = 11; i >= 0; --i) {
    writer.add("a." + std::to_string(i) + ".png", "x");
  }
  const std::vector<ShardSample> samples = read_all(writer);
  ASSERT_EQ(samples[0].images.size(), 12U);
  EXPECT_EQ(samples[0].images[10].name, "a.10.png");
}

TEST(ShardReader, RefusesSamplesThatCannotBeMeant) {
  EXPECT_NE(refused(TarWriter().add("a.png", "1")).find("has no 'a.json'"), std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.json", "2")).find("a second text"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.1.png", "2")).find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.png", "2").add("a.jpg", "2"))
                .find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.0.png", "2").add("a.0.jpg", "2"))
                .find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.left.png", "2")).find("'left'"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.flac", "2")).find("'.flac'"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.1.wav", "2"))
                .find("the clips of sample 'a' are not numbered"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add("a.json", "1").add("a.0.webp", "2")).find("'.webp'"),
            std::string::npos);
  EXPECT_NE(refused(TarWriter().add(".json", "1")).find("no name"), std::string::npos);
  EXPECT_NE(refused(TarWriter().add("README", "1")).find("no name"), std::string::npos);
}

TEST(SampleId, NamesTheSplitAndTheSample) {
  EXPECT_EQ(sample_id("/x/train-000003.tar", "chart"), "train/chart");
  EXPECT_EQ(sample_id("my-data-7.tar", "a/b"), "my-data/a/b");
  EXPECT_EQ(sample_id("my-data.tar", "a"), "my-data/a");
  EXPECT_EQ(sample_id("-1.tar", "a"), "-1/a");
}

TEST(ReadSample, BringsTheSampleThatTheReaderFound) {
  const TemporaryFolder folder;
  TarWriter writer;
  writer.add("a.json", "{}")
      .add_pax("b.1.png", "one")
      .add("b.0.png", "zero")
      .add("b.json", "[]")
      .add("b.wav", "sound")
      .add("c.json", "{}");
  const auto shard = folder.write("train-000001.tar", writer.archive());
  ShardReader reader(shard);
  reader.next();
  // A pax header in front of the first member belongs to the sample. The short name behind it does
  // not matter.
  const ShardSample found = *reader.next();
  ASSERT_EQ(found.name, "b");
  const RawSample sample = read_sample(shard, {"", found.offset, found.bytes}, "train/b");
  EXPECT_EQ(sample.text, "[]");
  EXPECT_EQ(sample.images, (std::vector<std::string>{"zero", "one"}));
  EXPECT_EQ(sample.audio, (std::vector<std::string>{"sound"}));
}

TEST(ReadSample, RefusesAnotherPlaceAndNamesSampleShardAndOffset) {
  const TemporaryFolder folder;
  TarWriter writer;
  writer.add("a.json", "{}").add("b.json", "[]");
  const auto shard = folder.write("train-000001.tar", writer.archive());
  const auto message = [&](SampleLocation location, const std::string& id) {
    const std::string text = error_of<InvalidInput>([&] { read_sample(shard, location, id); });
    EXPECT_NE(text.find("sample '" + id + "'"), std::string::npos) << text;
    EXPECT_NE(text.find("train-000001.tar"), std::string::npos) << text;
    EXPECT_NE(text.find("offset " + std::to_string(location.offset)), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(message({"", 0, 1024}, "train/b").find("'train/a' stands there"), std::string::npos);
  EXPECT_NE(message({"", 0, 2048}, "train/a").find("more than one"), std::string::npos);
  EXPECT_NE(message({"", 0, 512}, "train/a").find("truncated"), std::string::npos);
  EXPECT_NE(message({"", 512, 1024}, "train/a").find("checksum"), std::string::npos);
  EXPECT_NE(message({"", 1024, 2048}, "train/b").find("end mark"), std::string::npos);
  EXPECT_NE(message({"", 3000, 4096}, "train/b").find("3072 bytes"), std::string::npos);
  std::filesystem::remove(shard);
  message({"", 0, 1024}, "train/a");
}

}  // namespace
}  // namespace entrain
