#include "entrain/core/dataset/shard.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/sample_source.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TarWriter;
using oracle::TemporaryFolder;

std::vector<FoundSample> read_all(const TarWriter& writer) {
  const TemporaryFolder folder;
  ShardReader reader(folder.write("train-000001.tar", writer.archive()));
  std::vector<FoundSample> samples;
  while (std::ssize(samples) < reader.num_samples()) {
    samples.push_back(reader.next());
  }
  return samples;
}

// "a.png" of "…train-000001.tar, offset 1024, member 'a.png'".
std::string member_of(const MediaBytes& bytes) {
  const std::size_t quote = bytes.where.rfind('\'', bytes.where.size() - 2);
  return bytes.where.substr(quote + 1, bytes.where.size() - quote - 2);
}

std::string refused_shard(const TarWriter& writer) {
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
  const std::vector<FoundSample> samples = read_all(writer);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].id, "train/a");
  EXPECT_EQ(samples[0].offset, 0);
  EXPECT_EQ(samples[0].size, 2048);
  ASSERT_EQ(samples[1].images.size(), 2U);
  EXPECT_EQ(member_of(samples[1].images[0]), "b.0.png");
  EXPECT_EQ(member_of(samples[1].images[1]), "b.1.JPG");
  EXPECT_EQ(samples[1].ignored, (std::vector<std::string>{".txt", ".x.cls"}));
  EXPECT_EQ(samples[1].offset, 2048);
  EXPECT_EQ(samples[2].id, "train/sub.d/c");
  EXPECT_TRUE(samples[2].images.empty());
}

TEST(ShardReader, NumbersClipsApartFromImages) {
  TarWriter writer;
  writer.add("a.json", "{}").add("a.1.wav", "1").add("a.png", "2").add("a.0.flac", "3");
  const std::vector<FoundSample> samples = read_all(writer);
  ASSERT_EQ(samples[0].audio.size(), 2U);
  EXPECT_EQ(member_of(samples[0].audio[0]), "a.0.flac");
  EXPECT_EQ(samples[0].images.size(), 1U);
}

TEST(ShardReader, FindsFramesOfVideosBesideImages) {
  TarWriter writer;
  writer.add("a.json", "{}").add("a.png", "i").add("a.1.0.jpg", "b0");
  writer.add("a.0.0010.png", "a10");
  for (int frame = 9; frame >= 0; --frame) {
    writer.add("a.0.000" + std::to_string(frame) + ".png", "a" + std::to_string(frame));
  }
  const TemporaryFolder folder;
  const auto path = folder.write("train-0.tar", writer.archive());
  ShardReader reader(path);
  const FoundSample sample = reader.next();
  EXPECT_EQ(sample.images.size(), 1U);
  ASSERT_EQ(sample.videos.size(), 2U);
  const RawSample raw = read_sample({path.string(), sample.offset, sample.size}, "train/a");
  ASSERT_EQ(raw.videos.at(0).frames.size(), 11U);
  EXPECT_EQ(raw.videos[0].frames[0], "a0");
  EXPECT_EQ(raw.videos[0].frames[10], "a10");
  EXPECT_EQ(raw.videos.at(1).frames, std::vector<std::string>{"b0"});
  EXPECT_FALSE(raw.videos[1].file);
}

TEST(ShardReader, FindsFilesOfVideoBesideFrames) {
  TarWriter writer;
  writer.add("a.json", "{}").add("a.2.webm", "c").add("a.1.0.jpg", "b0").add("a.0.MP4", "a");
  writer.add("b.mov", "d").add("b.txt", "t");
  const TemporaryFolder folder;
  const auto path = folder.write("train-0.tar", writer.archive());
  ShardReader reader(path);
  const FoundSample sample = reader.next();
  const RawSample raw = read_sample({path.string(), sample.offset, sample.size}, "train/a");
  ASSERT_EQ(raw.videos.size(), 3U);
  EXPECT_EQ(raw.videos[0].file->bytes, "a");
  EXPECT_EQ(raw.videos[0].file->path, "");
  EXPECT_EQ(raw.videos[1].frames, std::vector<std::string>{"b0"});
  EXPECT_EQ(raw.videos[2].file->bytes, "c");
  EXPECT_EQ(member_of(*reader.next().videos.at(0).file), "b.mov");
}

TEST(ShardReader, RefusesVideosThatLackFrames) {
  const auto refused = [](const char* first, const char* second) {
    return refused_shard(TarWriter().add("a.json", "1").add(first, "2").add(second, "3"));
  };
  EXPECT_NE(refused("a.0.0.png", "a.0.2.png")
                .find("the frames of video 0 of sample 'a' are not numbered 0 to 1"),
            std::string::npos);
  EXPECT_NE(
      refused("a.0.0.png", "a.2.0.png").find("the videos of sample 'a' are not numbered 0 to 1"),
      std::string::npos);
  EXPECT_NE(refused("a.0.0.png", "a.0.x.png").find("'x' is not the number of a frame"),
            std::string::npos);
  EXPECT_NE(refused("a.0.mp4", "a.0.0.png").find("a video of sample 'a' is there twice"),
            std::string::npos);
  EXPECT_NE(refused("a.0.mp4", "a.0.mkv").find("a video of sample 'a' is there twice"),
            std::string::npos);
  EXPECT_NE(refused("a.mp4", "a.0.0.png").find("the videos of sample 'a' are not numbered 0 to 1"),
            std::string::npos);
  EXPECT_NE(refused("a.0.mp4", "a.2.mp4").find("the videos of sample 'a' are not numbered 0 to 1"),
            std::string::npos);
  EXPECT_NE(refused("a.x.mp4", "a.0.mp4").find("'x' is not the number of a video"),
            std::string::npos);
}

TEST(ShardReader, RefusesFormatsThatCannotBeReadWithTheWayOut) {
  const auto refused = [](const std::string& member) {
    return refused_shard(TarWriter().add("a.json", "1").add(member, "2"));
  };
  EXPECT_NE(refused("a.0.TIFF")
                .find("'.tiff' members cannot be read; images must be PNG, JPEG, "
                      "WebP or GIF: `magick x.tiff x.png`"),
            std::string::npos);
  EXPECT_NE(refused("a.m4a").find("`ffmpeg -i x.m4a x.flac`"), std::string::npos);
  EXPECT_NE(refused("a.0.wmv").find("`ffmpeg -i x.wmv x.mp4`"), std::string::npos);
}

TEST(ShardReader, TakesEveryFormatOfImagesAndClips) {
  TarWriter writer;
  writer.add("a.json", "{}");
  const std::vector<std::string> images = {"a.0.webp", "a.1.gif", "a.2.png", "a.3.JPG", "a.4.jpeg"};
  const std::vector<std::string> clips = {"a.0.mp3", "a.1.ogg", "a.2.opus", "a.3.wav", "a.4.flac"};
  for (const auto& names : {images, clips}) {
    for (const std::string& name : names) {
      writer.add(name, "x");
    }
  }
  const std::vector<FoundSample> samples = read_all(writer);
  ASSERT_EQ(samples[0].images.size(), 5U);
  ASSERT_EQ(samples[0].audio.size(), 5U);
  EXPECT_TRUE(samples[0].ignored.empty());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(member_of(samples[0].images[i]), images[i]);
    EXPECT_EQ(member_of(samples[0].audio[i]), clips[i]);
  }
}

TEST(ShardReader, OrdersMoreThanTenImagesByNumber) {
  TarWriter writer;
  writer.add("a.json", "{}");
  for (int i = 11; i >= 0; --i) {
    writer.add("a." + std::to_string(i) + ".png", "x");
  }
  const std::vector<FoundSample> samples = read_all(writer);
  ASSERT_EQ(samples[0].images.size(), 12U);
  EXPECT_EQ(member_of(samples[0].images[10]), "a.10.png");
}

TEST(ShardReader, RefusesSamplesThatCannotBeMeant) {
  EXPECT_NE(refused_shard(TarWriter().add("a.png", "1")).find("has no 'a.json'"),
            std::string::npos);
  EXPECT_NE(
      refused_shard(TarWriter().add("a.json", "1").add("a.json", "2")).find("a second '.json'"),
      std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.1.png", "2")).find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.png", "2").add("a.jpg", "2"))
                .find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.0.png", "2").add("a.0.jpg", "2"))
                .find("not numbered"),
            std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.left.png", "2")).find("'left'"),
            std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.1.wav", "2"))
                .find("the clips of sample 'a' are not numbered"),
            std::string::npos);
  EXPECT_NE(
      refused_shard(TarWriter().add("a.x.json", "1").add("a.y.json", "2")).find("rename them"),
      std::string::npos);
  EXPECT_NE(refused_shard(TarWriter().add("a.json", "1").add("a.v.0.png", "2")).find("'v.0'"),
            std::string::npos);
}

// Keys, extensions and what is passed over are those of webdataset 1.0.2 for this archive; it has
// no roles, leaves "./" in front of keys, and takes "sub/.x.json" for a sample named "sub/".
TEST(ShardReader, GroupsAsTheWebdatasetLibraryDoes) {
  TarWriter writer;
  writer.add("./", "", '5');
  for (const char* name : {"./a.png",
                           "./a.json",
                           "./b.v2.json",
                           "./b.v2.0.png",
                           "./b.v2.1.PNG",
                           "README",
                           "./.hidden",
                           "__meta__",
                           "__notes__/x.json",
                           "sub.d/c.json",
                           "sub.d/c.jpg",
                           "sub/c.json",
                           "._d.json",
                           "d.seg.txt",
                           "d.json",
                           "e.JSON"}) {
    writer.add(name, "x");
  }
  const TemporaryFolder folder;
  ShardReader reader(folder.write("train-000001.tar", writer.archive()));
  std::string found;
  for (std::int64_t i = 0; i < reader.num_samples(); ++i) {
    const FoundSample sample = reader.next();
    found += sample.id + ": " + member_of(sample.text);
    for (const MediaBytes& image : sample.images) {
      found += " " + member_of(image);
    }
    for (const std::string& ignored : sample.ignored) {
      found += " (" + ignored + ")";
    }
    found += sample.scattered ? " scattered\n" : "\n";
  }
  EXPECT_EQ(found,
            "train/a: a.json a.png\n"
            "train/b: b.v2.json b.v2.0.png b.v2.1.PNG\n"
            "train/sub.d/c: sub.d/c.json sub.d/c.jpg\n"
            "train/sub/c: sub/c.json\n"
            "train/d: d.json (.seg.txt)\n"
            "train/e: e.JSON\n");
  EXPECT_EQ(reader.skipped(),
            (std::map<std::string, std::int64_t>{
                {"hidden files", 2}, {"no extension", 1}, {"__NAME__ (metadata)", 2}}));
}

// `tar cf s.tar .` writes members in the folder's order, which is any; the library would make two
// samples of one whose members lie apart.
TEST(ShardReader, FindsMembersThatLieApart) {
  const TemporaryFolder folder;
  TarWriter writer;
  writer.add("b.png", "B").add("a.1.png", "A1").add("b.json", "[]").add("a.json", "{}");
  writer.add("c.json", "{}").add("a.0.png", std::string(5 << 20, 'A'));
  const auto shard = folder.write("train-000001.tar", writer.archive());
  ShardReader reader(shard);
  for (const char* name : {"b", "a", "c"}) {
    const FoundSample found = reader.next();
    EXPECT_EQ(found.id, std::string("train/") + name);
    EXPECT_EQ(found.scattered, found.id != "train/c");
    const RawSample raw = read_sample({shard.string(), found.offset, found.size},
                                      found.id);  // a: beyond one read
    EXPECT_EQ(raw.images.size(), found.images.size());
    EXPECT_EQ(raw.text, found.id == "train/b" ? "[]" : "{}");
    if (found.id == "train/a") {
      EXPECT_EQ(raw.images.at(0), std::string(5 << 20, 'A'));
      EXPECT_EQ(raw.images.at(1), "A1");
    }
  }
  EXPECT_EQ(reader.num_samples(), 3);
}

TEST(ShardReader, GoesOnBehindASampleThatItRefused) {
  const TemporaryFolder folder;
  TarWriter writer;
  writer.add("a.png", "1").add("b.json", "{}");
  ShardReader reader(folder.write("train-000001.tar", writer.archive()));
  EXPECT_EQ(reader.num_samples(), 2);
  EXPECT_EQ(reader.upcoming(), "train/a");
  EXPECT_THROW(reader.next(), InvalidInput);
  EXPECT_EQ(reader.next().id, "train/b");
}

TEST(SampleId, NamesTheSplitAndTheSample) {
  EXPECT_EQ(sample_id("/x/train-000003.tar", "chart"), "train/chart");
  EXPECT_EQ(sample_id("my-data-7.tar", "a/b"), "my-data/a/b");
  EXPECT_EQ(sample_id("my-data.tar", "a"), "my-data/a");
  EXPECT_EQ(sample_id("-1.tar", "a"), "-1/a");
  EXPECT_EQ(sample_id("x/train-0001.tar.gz", "a"), "train/a");
  EXPECT_EQ(sample_id("train.tgz", "a"), "train/a");
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
  const FoundSample found = reader.next();
  ASSERT_EQ(found.id, "train/b");
  const RawSample sample = read_sample({shard.string(), found.offset, found.size}, "train/b");
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
    location.shard = shard.string();
    const std::string text = error_of<InvalidInput>([&] { read_sample(location, id); });
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
  const auto compressed = folder.write("train-000001.tar.gz", "x");
  EXPECT_NE(error_of<InvalidInput>([&] {
              read_sample({compressed.string(), 0, 1}, "train/a");
            }).find("compressed"),
            std::string::npos);
}

}  // namespace
}  // namespace entrain
