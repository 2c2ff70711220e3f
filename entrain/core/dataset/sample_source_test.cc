#include "entrain/core/dataset/sample_source.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::flat_png;
using oracle::TarWriter;
using oracle::TemporaryFolder;

SampleLocation location_of(const std::filesystem::path& file,
                           const FoundSample& sample,
                           const std::string& columns = "") {
  return {file.string(), sample.offset, sample.size, file.parent_path().string(), columns};
}

class Samples : public testing::Test {
 protected:
  std::string refused(const std::filesystem::path& file, const std::string& columns) {
    return error_of<InvalidInput>([&] {
      const auto source = open_samples(file, folder_.path(), ColumnMap(columns));
      while (true) {
        source->next();
      }
    });
  }

  TemporaryFolder folder_;
};

TEST_F(Samples, OfAShardAreReadWhereTheyWereFound) {
  const auto file = folder_.write("s-01.tar",
                                  TarWriter()
                                      .add("a.txt", "a caption\n")
                                      .add("a.png", "image a")
                                      .add("b.json", R"({"text": "b"})")
                                      .add("b.wav", "clip b")
                                      .archive());
  const auto source = open_samples(file, "");
  ASSERT_EQ(source->num_samples(), 2);
  EXPECT_EQ(source->upcoming(), "s/a");
  const FoundSample first = source->next();
  const RawSample a = read_sample(location_of(file, first), "s/a");
  EXPECT_EQ(a.text, R"({"caption":"a caption"})");
  EXPECT_EQ(a.images, std::vector<std::string>{"image a"});
  const FoundSample second = source->next();
  EXPECT_EQ(read_sample(location_of(file, second), "mine/s/b").audio,
            std::vector<std::string>{"clip b"});
  EXPECT_NE(error_of<InvalidInput>([&] {
              read_sample(location_of(file, second), "s/a");
            }).find("sample 's/b' stands there; if the file changed or moved"),
            std::string::npos);
}

TEST_F(Samples, TakeMembersThatColumnsName) {
  const std::string columns =
      "image=.1.jpg;image=.0.jpg;question=.json[q][text];answer=.txt,.json[a];video=;audio=";
  const auto file = folder_.write("s.tar",
                                  TarWriter()
                                      .add("a.0.jpg", "front")
                                      .add("a.1.jpg", "back")
                                      .add("a.mask.png", "mask")
                                      .add("a.wav", "noise")
                                      .add("a.json", R"({"q": {"text": "why"}, "a": ["x", "y"]})")
                                      .add("b.txt", "so\n")
                                      .add("b.json", R"({"q": {"text": 7}})")
                                      .archive());
  const auto source = open_samples(file, "", ColumnMap(columns));
  const FoundSample first = source->next();
  EXPECT_EQ(first.ignored, (std::vector<std::string>{".mask.png", ".wav"}));
  const RawSample a = read_sample(location_of(file, first, columns), "s/a");
  EXPECT_EQ(a.images, (std::vector<std::string>{"back", "front"}));
  EXPECT_EQ(a.audio.size(), 0U);
  EXPECT_EQ(a.text, R"({"question":"why","answer":["x","y"]})");
  const FoundSample second = source->next();
  EXPECT_EQ(read_sample(location_of(file, second, columns), "s/b").text,
            R"({"question":7,"answer":"so"})");
}

TEST_F(Samples, RefuseMembersThatAreNotThere) {
  const auto file = folder_.write(
      "s.tar", TarWriter().add("a.png", "x").add("a.json", R"({"text": "t", "n": 1e3})").archive());
  for (const auto& [columns, reason] :
       {std::pair("image=.jpg", "no sample has '.jpg'; the members are json, png"),
        std::pair("image=picture", "media of a shard are members, such as image=.jpg"),
        std::pair("answer=.cls;question=.json[text]", "no '.cls', which is to be the answer"),
        std::pair("text=.json[words]", "nothing at [words]; there are text, n"),
        std::pair("text=.json[n]", "JSON may spell in several ways"),
        std::pair("text=.png[n]", "this is none"),
        std::pair("text=label",
                  "nothing in 'label', which is to be the text; there are text, n")}) {
    const std::string message = refused(file, columns);
    EXPECT_NE(message.find(reason), std::string::npos) << columns << ": " << message;
  }
}

TEST_F(Samples, OfRecordsAreRenamed) {
  folder_.write("a.png", "image a");
  folder_.write("b.png", "image b");
  const std::string columns = "question=query;answer=label[0];image=front;image=more";
  const auto file = folder_.write(
      "r.jsonl",
      "{\"query\": \"q\", \"label\": [\"x\"], \"front\": null, \"image\": \"other.png\"}\n"
      "{\"query\": 3, \"label\": [\"y\"], \"front\": \"a.png\", \"more\": [\"b.png\", \"a.png\"],"
      " \"text\": \"t\"}\n");
  const auto source = open_samples(file, folder_.path(), ColumnMap(columns));
  const FoundSample first = source->next();
  EXPECT_EQ(read_sample(location_of(file, first, columns), "r/0").images.size(), 0U);
  const FoundSample second = source->next();
  const RawSample raw = read_sample(location_of(file, second, columns), "r/1");
  EXPECT_EQ(raw.images, (std::vector<std::string>{"image a", "image b", "image a"}));
  EXPECT_EQ(raw.text, R"({"question":3,"answer":"y","image":["a.png","b.png","a.png"]})");
  EXPECT_NE(refused(file, "image=pictrue").find("no record has 'pictrue'; the first has query"),
            std::string::npos);
  EXPECT_NE(refused(file, "answer=lable").find("nothing in 'lable'"), std::string::npos);
  EXPECT_NE(refused(file, "answer=.json").find("names a member of shards"), std::string::npos);
}

}  // namespace
}  // namespace entrain
