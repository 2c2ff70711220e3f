#include "entrain/core/dataset/columns.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

std::string renamed(const std::string& columns, const std::string& json) {
  return ColumnMap(columns).renamed(Json::parse(json), json, "x").dump();
}

TEST(Columns, HaveOneTextForEqualMaps) {
  const ColumnMap map("answer=label;images=front;image_path=back;audio=");
  EXPECT_EQ(map.text(), "answer=label;image=front;image=back;audio=");
  EXPECT_EQ(ColumnMap(map.text()).columns(), map.columns());
  EXPECT_EQ(map.theirs_of("image"), (std::vector<std::string>{"front", "back"}));
  EXPECT_EQ(map.theirs_of("audio"), std::vector<std::string>());
  EXPECT_EQ(map.theirs_of("video"), std::nullopt);
  EXPECT_TRUE(ColumnMap("").empty());
}

TEST(Columns, RefuseWhatCannotBeMeant) {
  for (const auto& [given, reason] :
       {std::pair("answer", "'answer' is not OURS=THEIRS"),
        std::pair("anwser=label",
                  "'anwser' in 'anwser=label' is no name of ours; allowed: messages"),
        std::pair("answer=", "a column is missing"),
        std::pair("answer=a;answer=b", "a text of two columns"),
        std::pair("answer=.txt;question=q", "name all as members")}) {
    const std::string message =
        error_of<InvalidInput>([&, columns = given] { ColumnMap map(columns); });
    EXPECT_NE(message.find(reason), std::string::npos) << given << ": " << message;
  }
}

TEST(Columns, RenameKeysOfADocument) {
  EXPECT_EQ(renamed("question=answer;answer=question", R"({"question": "a", "answer": "b"})"),
            R"({"question":"b","answer":"a"})");
  // A text of another form, and media under our own name, are not the sample's.
  EXPECT_EQ(renamed("answer=label;question=query;image=picture",
                    R"({"messages": [], "query": 1, "label": 0.5, "image": "a", "images": "b",
                        "picture": "c", "kind": "k"})"),
            R"({"kind":"k","answer":0.5,"question":1,"image":["c"]})");
  EXPECT_EQ(renamed("fps=rate", R"({"text": "t", "rate": 2})"), R"({"text":"t","fps":2})");
  EXPECT_EQ(renamed("answer=a[b][1]", R"({"question": "q", "a": {"b": [1, "x"]}})"),
            R"({"question":"q","answer":"x"})");
  EXPECT_EQ(renamed("answer=a[b]", R"({"a[b]": "literal", "a": {"b": "x"}, "question": "q"})"),
            R"({"a":{"b":"x"},"question":"q","answer":"literal"})");
  for (const char* path : {"a[b][2]", "a[b][x]", "a[c]", "a[b][0][0]", "a[b", "label"}) {
    EXPECT_NE(error_of<InvalidInput>([&] {
                renamed(std::string("answer=") + path, R"({"a": {"b": [1, "x"]}})");
              }).find("there are a"),
              std::string::npos)
        << path;
  }
  EXPECT_NE(error_of<InvalidInput>([] { renamed("answer=a", R"({"a": 1e3})"); }).find("quotes"),
            std::string::npos);
}

TEST(Columns, NameMembersInOrder) {
  const std::vector<MemberPlace> places = member_places(".JPG,.json[a,b][0],.0.png");
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places[0].extension, "jpg");
  EXPECT_EQ(places[1].extension, "json");
  EXPECT_EQ(places[1].steps, "[a,b][0]");
  EXPECT_EQ(places[2].extension, "0.png");
}

}  // namespace
}  // namespace entrain
