#include "entrain/core/dataset/measured_files.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::flat_png;
using oracle::TarWriter;
using oracle::TemporaryFolder;

class FilesThatAreMeasured : public testing::Test {
 protected:
  // `count` samples, the k-th with an image of `width` × (k + 1) pixels.
  FileToMeasure shard(const std::string& name, int count, int width) {
    TarWriter tar;
    for (int i = 0; i < count; ++i) {
      const std::string key = "s" + std::to_string(i);
      tar.add(key + ".png", flat_png(width, i % 50 + 1, 0, 0, 0));
      tar.add(key + ".json", R"({"question": "ab", "answer": "c"})");
    }
    return {folder_.write(name, tar.archive())};
  }

  TemporaryFolder folder_;
};

TEST_F(FilesThatAreMeasured, ComeInTheirOrderWhateverTheThreads) {
  // The first is longer than what is held of a file, so that its thread has to wait.
  const std::vector<FileToMeasure> files = {
      shard("a.tar", 5000, 3), shard("b.tar", 0, 4), shard("c.tar", 70, 5), shard("d.tar", 1, 6)};
  for (const int threads : {1, 2, 5}) {
    MeasuredFiles::Options options;
    options.threads = threads;
    MeasuredFiles measured(files, options);
    for (const auto& [count, width, name] : {std::tuple(5000, 3, "a"),
                                             std::tuple(0, 4, "b"),
                                             std::tuple(70, 5, "c"),
                                             std::tuple(1, 6, "d")}) {
      const MeasuredFile file = measured.next_file();
      ASSERT_EQ(file.num_samples, count);
      for (int i = 0; i < count; ++i) {
        const MeasuredSample sample = measured.next_sample();
        ASSERT_EQ(sample.sizes.id, std::string(name) + "/s" + std::to_string(i));
        ASSERT_EQ(sample.sizes.images, (std::vector<ImageSize>{{width, i % 50 + 1}}));
        ASSERT_EQ(sample.damage, "");
        ASSERT_EQ(sample.sizes.prompt_chars, 2);
        ASSERT_EQ(sample.sizes.response_tokens, 2);  // its byte and the end
        ASSERT_EQ(sample.json, "");
      }
    }
  }
}

TEST_F(FilesThatAreMeasured, SayWhatIsDamaged) {
  const std::string png = flat_png(9, 9, 0, 0, 0);
  TarWriter tar;
  tar.add("a.json", R"({"text": "x"})").add("a.png", png);
  tar.add("b.json", R"({"text": "x"})").add("b.png", png.substr(0, png.size() - 8));
  tar.add("c.json", R"({"text": "x"})").add("c.cls", "3");
  const FileToMeasure shard = {folder_.write("s.tar", tar.archive())};
  const FileToMeasure cut = {folder_.write("cut.tar", tar.archive().substr(0, 700))};
  MeasuredFiles::Options options;
  options.keep_json = true;
  MeasuredFiles measured({cut, shard}, options);
  EXPECT_NE(measured.next_file().damage.find("cut.tar"), std::string::npos);
  ASSERT_EQ(measured.next_file().num_samples, 3);
  EXPECT_EQ(measured.next_sample().json, R"({"text": "x"})");
  const MeasuredSample damaged = measured.next_sample();
  EXPECT_EQ(damaged.sizes.id, "s/b");
  EXPECT_NE(damaged.damage.find("b.png"), std::string::npos) << damaged.damage;
  EXPECT_EQ(damaged.sizes.images.size(), 0U);
  const MeasuredSample last = measured.next_sample();
  EXPECT_EQ(last.damage, "");
  EXPECT_EQ(last.ignored, std::vector<std::string>{".cls"});
}

TEST_F(FilesThatAreMeasured, MayBeLeftAtAnyTime) {
  const std::vector<FileToMeasure> files = {shard("a.tar", 9000, 3), shard("b.tar", 9000, 3)};
  MeasuredFiles::Options options;
  options.threads = 2;
  MeasuredFiles measured(files, options);
  EXPECT_EQ(measured.next_file().num_samples, 9000);
  EXPECT_EQ(measured.next_sample().sizes.id, "a/s0");
}  // its threads wait for room here

}  // namespace
}  // namespace entrain
