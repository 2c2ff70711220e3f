#include "entrain/core/dataset/index.h"

#include <fstream>

#include <gtest/gtest.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/token_cache.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

constexpr const char* kHeader =
    "sample_id,n_images,image_sizes,audio_seconds,video_seconds,video_frames,video_size,"
    "prompt_chars,response_chars,text_chars,prompt_tokens_estimate,response_tokens_estimate,"
    "text_tokens_estimate\n";

Index full_index() {
  SampleSizes image;
  image.id = "train/a, \"b\"";
  image.images = {{3, 4}, {500, 6}};
  image.prompt_chars = 7;
  image.response_chars = 8;
  image.prompt_tokens_estimate = 9;
  image.response_tokens_estimate = 10;
  image.prompt_tokens = 11;
  image.response_tokens = 12;
  image.location = SampleLocation{"shards/train-000000.tar", 1024, 2048};
  SampleSizes sound;
  sound.id = "c";
  sound.audio_seconds = {0.1, 3285.848};
  sound.videos = {{12.5, std::nullopt, std::nullopt}, {7, 210, ImageSize{640, 360}}};
  Index index;
  index.samples = {image, sound};
  index.text_digest = "0123abcd";
  index.extra_columns = {"source", "note"};
  index.extra_values = {{"web", "a;b"}, {"", "x,y"}};
  return index;
}

std::string refused_index(const std::string& content) {
  const TemporaryFolder folder;
  const auto path = folder.write("bad.csv", content);
  const std::string message = error_of<InvalidInput>([&] { read_index(path); });
  EXPECT_NE(message.find("bad.csv:"), std::string::npos) << message;
  return message;
}

std::string refused_row(const std::string& row) {
  const std::string message =
      refused_index(std::string(kHeader) + "good,0,,,,,,1,2,3,1,1,2\n" + row + "\n");
  EXPECT_NE(message.find("bad.csv:3: "), std::string::npos) << message;
  return message;
}

TEST(Index, BringsEveryColumnBack) {
  const TemporaryFolder folder;
  const Index index = full_index();
  write_index(index, folder.path() / "index.csv");
  const Index read = read_index(folder.path() / "index.csv");
  EXPECT_EQ(read.samples, index.samples);
  EXPECT_EQ(read.text_digest, index.text_digest);
  EXPECT_EQ(read.extra_columns, index.extra_columns);
  EXPECT_EQ(read.extra_values, index.extra_values);
  EXPECT_EQ(digest(read), digest(index));
  EXPECT_EQ(located(read, *read.samples[0].location).shard,
            folder.path() / "shards/train-000000.tar");
}

TEST(Index, ReadsGzip) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "index.csv.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  const std::string content = std::string(kHeader) + "a,1,5x6,,,,,1,2,3,1,1,2\n";
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  EXPECT_EQ(read_index(path).samples.at(0).images.at(0), (ImageSize{5, 6}));
}

TEST(Index, DigestLeavesLocationsOutAndNothingElse) {
  const Index index = full_index();
  Index moved = index;
  moved.samples[0].location->offset += 512;
  EXPECT_EQ(digest(moved), digest(index));
  moved.samples[0].location.reset();
  EXPECT_EQ(digest(moved), digest(index));
  const auto changed = [&](auto change) {
    Index other = index;
    change(other);
    return digest(other) != digest(index);
  };
  EXPECT_TRUE(changed([](Index& other) { other.samples[0].id += "x"; }));
  EXPECT_TRUE(changed([](Index& other) { other.samples[0].images[1].height = 7; }));
  EXPECT_TRUE(changed([](Index& other) { other.samples[0].prompt_tokens = 12; }));
  EXPECT_TRUE(changed([](Index& other) { other.samples[1].audio_seconds[0] = 0.2; }));
  EXPECT_TRUE(changed([](Index& other) { other.text_digest = "4"; }));
  EXPECT_TRUE(changed([](Index& other) { other.extra_values[1][0] = "z"; }));
}

TEST(Index, AcceptsExactLengthsWithoutEstimates) {
  const TemporaryFolder folder;
  const auto path = folder.write("index.csv",
                                 "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
                                 "prompt_tokens,response_tokens\na,0,,1,2,10,20\n");
  const SampleSizes sample = read_index(path).samples.at(0);
  EXPECT_EQ(sample.prompt_tokens, 10);
  EXPECT_EQ(sample.response_tokens_estimate, 20);
}

TEST(Index, NamesAllMissingColumns) {
  const auto missing = [](const std::string& header, const std::string& expected) {
    const std::string message = refused_index(header + "\n");
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  };
  const std::string base = "sample_id,n_images,image_sizes,prompt_chars,response_chars";
  missing("sample_id,n_images",
          ":1: columns are missing: image_sizes, prompt_chars, response_chars, "
          "prompt_tokens_estimate, response_tokens_estimate; given: sample_id, n_images");
  missing(base, "missing: prompt_tokens_estimate, response_tokens_estimate;");
  missing(base + ",prompt_tokens", "missing: response_tokens;");
  missing(base + ",prompt_tokens,response_tokens,shard", "missing: offset, bytes;");
}

TEST(Index, DoesNotRepeatALineThatIsNoHeader) {
  for (const char* line : {"{\"id\": 3, ", "a,a,", "\"not closed", "\x89PNG", "\n,"}) {
    const std::string message = refused_index(line + std::string(10000, 'x') + "\n");
    EXPECT_NE(message.find("no index (CSV)"), std::string::npos) << line;
    EXPECT_LT(message.size(), 300U) << line;
  }
}

TEST(Index, CopiesNameTheSameShards) {
  const TemporaryFolder folder;
  Index index = full_index();
  write_index(index, folder.path() / "a" / "index.csv");
  index = read_index(folder.path() / "a" / "index.csv");
  copy_index(index.path, folder.path() / "b" / "c" / "copy.csv");
  const Index copy = read_index(folder.path() / "b" / "c" / "copy.csv");
  EXPECT_EQ(copy.samples[0].location->shard, "../../a/shards/train-000000.tar");
  EXPECT_EQ(located(copy, *copy.samples[0].location), located(index, *index.samples[0].location));
  EXPECT_EQ(digest(copy), digest(index));
}

TEST(Index, CopiesTakeTheirTokensAlong) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "index.csv";
  TokenCacheWriter writer;
  writer.add("a", {{1, 3}, {{1, 2}}, {}});
  Index index;
  index.samples.emplace_back();
  index.samples[0].id = "a";
  index.samples[0].prompt_tokens = index.samples[0].response_tokens = 1;
  TokenFacts facts;
  facts.vocabulary = 4;
  facts.loss = "all";
  index.text_digest = writer.write(token_cache_path(path), facts, {"", "", "", ""});
  write_index(index, path);
  const auto target = folder.path() / "other" / "copy.csv";
  copy_index(path, target);
  EXPECT_EQ(read_file(token_cache_path(target)), read_file(token_cache_path(path)));
  EXPECT_EQ(read_index(target).text_digest, index.text_digest);
  std::filesystem::remove(token_cache_path(path));
  EXPECT_NE(error_of<InvalidInput>([&] { copy_index(path, target); }).find("index.tokens"),
            std::string::npos);
}

TEST(Index, RefusesImpossibleFieldsAndNamesTheColumn) {
  const auto names = [](const std::string& row, const std::string& expected) {
    const std::string message = refused_row(row);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  };
  names("a,x,,,,,,1,2,3,1,1,2", "column 'n_images': 'x' is not a whole number");
  names("a,1.5,,,,,,1,2,3,1,1,2", "column 'n_images': '1.5' is not a whole number");
  names("a,,,,,,,1,2,3,1,1,2", "column 'n_images'");
  names("a,-1,,,,,,1,2,3,1,1,2", "column 'n_images': -1 is out of range");
  names("a,2,3x4,,,,,1,2,3,1,1,2", "column 'image_sizes': 1 sizes; n_images says 2");
  names("a,0,3x4,,,,,1,2,3,1,1,2", "column 'image_sizes': 1 sizes; n_images says 0");
  names("a,1,34,,,,,1,2,3,1,1,2", "column 'image_sizes': '34' is not a size");
  names("a,1,0x4,,,,,1,2,3,1,1,2", "column 'image_sizes': 0 is out of range");
  names("a,1,3x-4,,,,,1,2,3,1,1,2", "column 'image_sizes': -4 is out of range");
  names("a,0,,nan,,,,1,2,3,1,1,2", "column 'audio_seconds'");
  names("a,0,,-2.5,,,,1,2,3,1,1,2", "column 'audio_seconds': -2.5 is out of range");
  names("a,0,,0,,,,1,2,3,1,1,2", "column 'audio_seconds'");
  names("a,0,,,5s,,,1,2,3,1,1,2", "column 'video_seconds': '5s' is not a number");
  names("a,0,,,5,1;2,,1,2,3,1,1,2", "column 'video_frames': 2 entries; video_seconds has 1");
  names("a,0,,,5,,9,1,2,3,1,1,2", "column 'video_size': '9' is not a size");
  names("a,0,,,,,,-1,2,3,1,1,2", "column 'prompt_chars': -1 is out of range");
  names("a,0,,,,,,1,99999999999999999999,3,1,1,2", "column 'response_chars'");
  names("a,0,,,,,,1,2,4,1,1,2", "column 'text_chars': 4; prompt and response add up to 3");
  names("a,0,,,,,,1,2,3,1,1,3", "column 'text_tokens_estimate'");
  names(",0,,,,,,1,2,3,1,1,2", "column 'sample_id': empty");
  names("good,0,,,,,,1,2,3,1,1,2", "column 'sample_id': 'good' stands already in line 2");
  names("a,0,,,,,,1,2,3,1,1", "12 fields; the header has 13");
}

TEST(Index, RefusesLocationsAndDigestsThatDoNotFit) {
  const std::string header =
      "sample_id,n_images,image_sizes,prompt_chars,response_chars,prompt_tokens,response_tokens,"
      "text_digest,shard,offset,bytes\n";
  EXPECT_NE(refused_index(header + "a,0,,1,2,3,4,d,x.tar,,5\n").find("column 'offset'"),
            std::string::npos);
  EXPECT_NE(refused_index(header + "a,0,,1,2,3,4,d,x.tar,0,0\n").find("column 'bytes'"),
            std::string::npos);
  EXPECT_NE(refused_index(header + "a,0,,1,2,3,4,d,,0,512\n").find("column 'shard'"),
            std::string::npos);
  EXPECT_NE(refused_index(header + "a,0,,1,2,3,,d,,,\n").find("column 'response_tokens'"),
            std::string::npos);
  EXPECT_NE(refused_index(header + "a,0,,1,2,3,4,d,,,\nb,0,,1,2,3,4,e,,,\n")
                .find("column 'text_digest': 'e'; earlier rows say 'd'"),
            std::string::npos);
}

TEST(Index, RefusesMissingFiles) {
  const std::string message = error_of<InvalidInput>([] { read_index("no/such.csv"); });
  EXPECT_NE(message.find("no/such.csv"), std::string::npos);
}

TEST(Index, LeavesNoPartialFileWhereItCannotWrite) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  error_of<SystemFailure>([&] { write_index(full_index(), file / "index.csv"); });
  EXPECT_FALSE(std::filesystem::exists(file / "index.csv"));
}

TEST(Index, ReadsAndWritesTheSharedManifestsUnchanged) {
  if (oracle::shared_folder().empty()) {
    GTEST_SKIP() << "the shared data folder is absent";
  }
  const TemporaryFolder folder;
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(oracle::shared_folder() / "data" / "manifests")) {
    const Index index = read_index(entry.path());
    write_index(index, folder.path() / "copy.csv");
    const auto content = [](const std::filesystem::path& path) {
      std::ifstream in(path, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    EXPECT_GT(index.samples.size(), 0U);
    EXPECT_TRUE(content(entry.path()) == content(folder.path() / "copy.csv")) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 14);
}

TEST(Percentiles, AreByRank) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 200; i >= 1; --i) {
    values.push_back(i);
  }
  const Percentiles result = percentiles(values);
  EXPECT_EQ(result.count, 200);
  EXPECT_EQ(result.total, 20'100);
  EXPECT_EQ(result.p50, 100);
  EXPECT_EQ(result.p90, 180);
  EXPECT_EQ(result.p99, 198);
  EXPECT_EQ(result.max, 200);
  EXPECT_EQ(percentiles({5}).p50, 5);
  EXPECT_EQ(percentiles({}).count, 0);
}

}  // namespace
}  // namespace entrain
