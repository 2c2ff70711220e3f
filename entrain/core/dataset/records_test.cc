#include "entrain/core/dataset/records.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

std::vector<std::string> records_of(std::string_view text) {
  std::vector<std::string> result;
  for (const RecordRange& range : find_records(text, "x")) {
    result.emplace_back(text.substr(static_cast<std::size_t>(range.begin),
                                    static_cast<std::size_t>(range.end - range.begin)));
  }
  return result;
}

TEST(FindRecords, FindsElementsOfAListAndLines) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(records_of(R"( [ {"a": "],\"}"} , {"b": [1, {"c": 2}]},3 ] )"),
            (Words{R"({"a": "],\"}"})", R"({"b": [1, {"c": 2}]})", "3"}));
  EXPECT_EQ(records_of("[]"), Words{});
  EXPECT_EQ(records_of(" \n"), Words{});
  EXPECT_EQ(records_of("{\"a\": 1}\r\n\n {\"b\": \"\\\\\"} \n{}"),
            (Words{"{\"a\": 1}", "{\"b\": \"\\\\\"}", "{}"}));
}

TEST(FindRecords, RefusesListsThatAreNone) {
  const auto refused = [](std::string_view text, const std::string& reason) {
    const std::string message = error_of<InvalidInput>([&] { find_records(text, "x.json"); });
    EXPECT_NE(message.find("x.json, byte"), std::string::npos) << text;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  for (const char* text : {"[", "[{}", "[{},", "[{\"a\": \"]", "[{]", "[[1, 2]"}) {
    refused(text, "does not end");
  }
  refused("[{},]", "where an element");
  refused("[,{}]", "where an element");
  refused("[}]", "where an element");
  refused("[{}] [{}]", "more than one list");
  refused("text", "neither a list");
}

// The parser is the judge: whatever it takes as a list has these elements.
TEST(FindRecords, AgreesWithTheParserOnRandomTexts) {
  constexpr std::string_view kPieces[] = {"{", "}", "[", "]", ",", "\"", "\\", "1", "\"a\":", " "};
  Rng rng(7);
  int lists = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text = "[";
    for (std::uint64_t length = rng.below(9); length-- > 0;) {
      text += kPieces[rng.below(std::size(kPieces))];
    }
    text += "]";
    const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!document.is_array()) {
      error_of<InvalidInput>([&] {  // or one of its elements does not parse
        for (const std::string& record : records_of(text)) {
          parse_json(record, "");
        }
        throw InvalidInput("");
      });
      continue;
    }
    ++lists;
    const std::vector<std::string> records = records_of(text);
    ASSERT_EQ(records.size(), document.size()) << text;
    for (std::size_t k = 0; k < records.size(); ++k) {
      ASSERT_EQ(Json::parse(records[k]), document[k]) << text;
    }
  }
  EXPECT_GT(lists, 1'000);
}

class Records : public ::testing::Test {
 protected:
  FoundSample first(const std::string& record) {
    const auto file = folder_.write("train.jsonl", record);
    return RecordReader(file, folder_.path()).next();
  }
  std::string refused(const std::string& record) {
    const std::string message = error_of<InvalidInput>([&] { first(record); });
    EXPECT_NE(message.find("train.jsonl', the record at byte 0"), std::string::npos) << message;
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(Records, NamesThemByIdOrNumberAndGoesOnBehindADamagedOne) {
  const auto file =
      folder_.write("x.json",
                    R"([{"id": "a", "text": ""}, {"text": ""}, {"id": 17}, {"id": }, 5,
                                      {"id": "a"}, {"id": [1]}])");
  RecordReader reader(file, folder_.path());
  ASSERT_EQ(reader.num_samples(), 7);
  std::vector<std::string> ids;
  int damaged = 0;
  for (int i = 0; i < 7; ++i) {
    ids.push_back(reader.upcoming());
    try {
      const FoundSample found = reader.next();
      EXPECT_EQ(found.id, ids.back());
      const SampleLocation place{file.string(), found.offset, found.size, folder_.path()};
      const FoundSample again = read_record(place, found.id);
      EXPECT_EQ(again.id, found.id);
      EXPECT_EQ(again.text.content(), found.text.content());
    } catch (const InvalidInput&) {
      ++damaged;
    }
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"x/a", "x/1", "x/17", "x/3", "x/4", "x/a#2", "x/6"}));
  EXPECT_EQ(damaged, 2);
  const std::int64_t size = static_cast<std::int64_t>(std::filesystem::file_size(file));
  EXPECT_NE(read_record({file.string(), 1, 23, folder_.path()}, "x/b").id, "x/b");
  EXPECT_THROW(read_record({file.string(), 1, size, folder_.path()}, "x/a"), InvalidInput);
}

TEST_F(Records, ReadsLargeMediaInPieces) {
  std::string content(200'000, 'a');
  content[70'000] = 'b';
  content[199'999] = 'c';
  folder_.write("media/big.png", content);
  const FoundSample found = first(R"({"images": ["media/big.png"]})");
  const MediaBytes& image = found.images.at(0);
  EXPECT_EQ(image.size, 200'000);
  EXPECT_EQ(image.bytes(70'000, 1), "b");
  EXPECT_EQ(image.bytes(199'999, 1), "c");
  EXPECT_EQ(image.bytes(0, 2), "aa");
  EXPECT_EQ(image.content(), content);
  EXPECT_NE(image.where.find("image 0 ('" + (folder_.path() / "media/big.png").string() + "')"),
            std::string::npos)
      << image.where;
}

TEST_F(Records, RefusesMediaThatAreNotThere) {
  EXPECT_NE(refused(R"({"image": "none.png"})").find("none.png': No such file"), std::string::npos);
  EXPECT_NE(refused(R"({"image": "../x.png"})").find("outside"), std::string::npos);
  EXPECT_NE(refused(R"({"image": "a/../../x.png"})").find("outside"), std::string::npos);
  std::filesystem::create_directories(folder_.path() / "folder.png");
  EXPECT_NE(refused(R"({"image": "folder.png"})").find("no regular file"), std::string::npos);
  std::filesystem::create_symlink("loop.png", folder_.path() / "loop.png");
  EXPECT_NE(refused(R"({"image": "loop.png"})").find("loop.png'"), std::string::npos);
  EXPECT_NE(refused(R"({"video": "a.mp4"})").find("a.mp4': No such file"), std::string::npos);
}

}  // namespace
}  // namespace entrain
