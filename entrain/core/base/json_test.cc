#include "entrain/core/base/json.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.push_back(key);
  }
  return keys;
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(keys_of(parse_json(R"({"z": 1, "a": 2, "m": 3})", "f.json")),
            (std::vector<std::string>{"z", "a", "m"}));
}

TEST(ParseJson, NamesFileAndPlaceOfAMistake) {
  const std::string message =
      error_of<InvalidInput>([] { parse_json("{\"a\": 1,\n \"b\": }", "f.json"); });
  EXPECT_EQ(message.rfind("f.json: not valid JSON: ", 0), 0U) << message;
  EXPECT_NE(message.find("line 2, column 7"), std::string::npos) << message;
}

TEST(SetByPath, TakesTextBeyondAsciiAndRefusesWhatIsNone) {
  Json document = Json::object();
  set_by_path(document, "output=caf\xC3\xA9");
  EXPECT_EQ(document["output"], "caf\xC3\xA9");
  EXPECT_THROW(set_by_path(document, "output=caf\xC3"), InvalidInput);
}

TEST(ParseJson, RefusesNumbersOutOfRange) {
  const std::string message =
      error_of<InvalidInput>([] { parse_json(R"({"a": 1e999})", "f.json"); });
  EXPECT_EQ(message.rfind("f.json: not valid JSON: ", 0), 0U) << message;
}

TEST(ParseToml, RefusesWhatTheLibraryAssertsOrCannotClassify) {
  EXPECT_EQ(error_of<InvalidInput>([] {
              parse_toml("a = 1\n[= 2\n", "f.toml");
            }).rfind("f.toml:2:2: ", 0),
            0U);
  EXPECT_EQ(
      error_of<InvalidInput>([] { parse_toml("a = 1\n\xCB\x9E = 2\n", "f.toml"); }),
      "f.toml:2: not valid TOML: a character that is not ASCII outside of quotes and comments");
  // Quotes amiss: the letters seem to stand within a string, and the library meets them outside.
  for (const char* text : {"men = 0a\"%\xEF\xB7\xB7%\xE2\x80\x8A\"\n",
                           "x = 4a\"\xD1\x8B\"\n",
                           "x = [0.\"\xC3\xA9\"]\n",
                           "x = 1 \"\xCE\xB1\"\n"}) {
    EXPECT_EQ(error_of<InvalidInput>([&] { parse_toml(text, "f.toml"); }).rfind("f.toml:1:", 0), 0U)
        << text;
  }
  const Json document = parse_toml(
      "\xEF\xBB\xBF# \xC3\xA9 'open\nname = \"\xC3\xA9 \\\" # \xC3\xA9\" # \xC3\xA9\n"
      "two = '\xC3\xA9\\'\nthree = \"\"\"\xC3\xA9 \"x\" \n\xC3\xA9\"\"\"\n",
      "f.toml");
  EXPECT_EQ(document["name"], "\xC3\xA9 \" # \xC3\xA9");
  EXPECT_EQ(document["two"], "\xC3\xA9\\");
  EXPECT_EQ(document["three"], "\xC3\xA9 \"x\" \n\xC3\xA9");
}

TEST(ParseJson, RefusesHostileDepth) {
  const std::string deep = std::string(100'000, '[');
  EXPECT_EQ(error_of<InvalidInput>([&] { parse_json("{\"version\": " + deep, "f.json"); }),
            "f.json: not valid JSON: lists and tables nest deeper than 200 at byte 211");
  const std::string brackets = std::string(R"({"a": "\"[[[)") + std::string(300, '[') + "\"}";
  EXPECT_NO_THROW(parse_json(brackets, "f.json"));
}

TEST(ReadJsonFile, RefusesAMissingFile) {
  EXPECT_THROW(read_json_file("no/such/file.json"), InvalidInput);
  EXPECT_THROW(read_toml_file("no/such/file.toml"), InvalidInput);
}

TEST(ReadJsonFile, ReadsWhatWasWritten) {
  const auto path = std::filesystem::temp_directory_path() / "entrain-json-test.json";
  write_file(path, R"({"a": [1, 2.5, "x", true, null]})");
  EXPECT_EQ(read_json_file(path).dump(), R"({"a":[1,2.5,"x",true,null]})");
  std::filesystem::remove(path);
}

TEST(ParseToml, GivesTheSameTreeAsJson) {
  const Json document = parse_toml(
      "name = \"m\"\nbig = 9007199254740993\nhalf = 0.5\nflag = true\nlist = [1, [2, 3]]\n"
      "[table]\ninner = { x = 1 }\n",
      "f.toml");
  EXPECT_EQ(document.dump(),
            R"({"name":"m","big":9007199254740993,"half":0.5,"flag":true,"list":[1,[2,3]],)"
            R"("table":{"inner":{"x":1}}})");
}

TEST(ParseToml, KeepsTheOrderOfTheFile) {
  const Json document = parse_toml(
      "zeta = 1\nalpha = 2\n[vision]\ny = 1\nb = 2\n[audio]\n[llm.z]\n[llm.a]\n", "f.toml");
  EXPECT_EQ(keys_of(document),
            (std::vector<std::string>{"zeta", "alpha", "vision", "audio", "llm"}));
  EXPECT_EQ(keys_of(document["vision"]), (std::vector<std::string>{"y", "b"}));
  EXPECT_EQ(keys_of(document["llm"]), (std::vector<std::string>{"z", "a"}));
}

TEST(ParseToml, NamesFileLineAndColumnOfAMistake) {
  const std::string message =
      error_of<InvalidInput>([] { parse_toml("a = 1\nb = = 2\n", "f.toml"); });
  EXPECT_EQ(message.rfind("f.toml:2:5: not valid TOML: ", 0), 0U) << message;
}

TEST(ParseToml, RefusesDatesAndDuplicates) {
  EXPECT_THROW(parse_toml("day = 2024-01-01\n", "f.toml"), InvalidInput);
  EXPECT_THROW(parse_toml("a = 1\na = 2\n", "f.toml"), InvalidInput);
}

TEST(SetByPath, ReadsValuesByTomlRules) {
  Json document = parse_json(R"({"train": {"steps": 10}})", "f");
  set_by_path(document, "train.steps=20");
  set_by_path(document, "train.lr=1e-3");
  set_by_path(document, "train.resume=true");
  set_by_path(document, "train.sizes=[1, 2]");
  set_by_path(document, "train.name=hello world");
  set_by_path(document, "train.quoted=\"5\"");
  set_by_path(document, "new.table.key=a=b");
  EXPECT_EQ(document.dump(),
            R"({"train":{"steps":20,"lr":0.001,"resume":true,"sizes":[1,2],)"
            R"("name":"hello world","quoted":"5"},"new":{"table":{"key":"a=b"}}})");
}

TEST(SetByPath, TakesTextWithLineBreaksAsOneString) {
  Json document = Json::object();
  set_by_path(document, "a=1\nb = 2");
  EXPECT_EQ(document.dump(), R"({"a":"1\nb = 2"})");
}

TEST(SetByPath, RefusesWhatIsNotAnAssignment) {
  Json document = parse_json(R"({"a": 1})", "f");
  EXPECT_THROW(set_by_path(document, "a"), InvalidInput);
  EXPECT_THROW(set_by_path(document, "=1"), InvalidInput);
  EXPECT_THROW(set_by_path(document, "a.b=1"), InvalidInput);
  EXPECT_THROW(set_by_path(document, "a..b=1"), InvalidInput);
  EXPECT_THROW(set_by_path(document, "a.=1"), InvalidInput);
  EXPECT_EQ(document.dump(), R"({"a":1})") << "a refused assignment changes nothing";
}

TEST(ObjectReader, ReadsEveryType) {
  const Json document = parse_json(
      R"({"flag": true, "count": -3, "large": 9007199254740993, "huge": 18446744073709551615,
          "ratio": 2, "name": "x"})",
      "f.json");
  ObjectReader reader(document, "f.json");
  EXPECT_TRUE(reader.required<bool>("flag"));
  EXPECT_EQ(reader.required<int>("count"), -3);
  EXPECT_EQ(reader.required<std::int64_t>("large"), 9007199254740993);
  EXPECT_EQ(reader.required<std::uint64_t>("huge"), 18446744073709551615U);
  EXPECT_EQ(reader.required<double>("ratio"), 2.0);
  EXPECT_EQ(reader.required<std::string>("name"), "x");
  EXPECT_EQ(reader.optional("absent", 7), 7);
  EXPECT_NO_THROW(reader.finish());
}

TEST(ObjectReader, NamesAMissingKey) {
  const Json document = parse_json(R"({"vision": {}})", "m");
  ObjectReader reader(document, "model.toml");
  ObjectReader vision = reader.object("vision");
  EXPECT_EQ(error_of<InvalidInput>([&] { vision.required<int>("hidden"); }),
            "model.toml: vision.hidden: missing");
  EXPECT_EQ(error_of<InvalidInput>([&] { reader.required<int>("llm"); }),
            "model.toml: llm: missing");
}

TEST(ObjectReader, RefusesUnknownKeysWithASuggestion) {
  const Json document = parse_json(R"({"vision": {"num_layers": 1, "hiden": 2}})", "m");
  ObjectReader reader(document, "model.toml");
  ObjectReader vision = reader.object("vision");
  vision.required<int>("num_layers");
  vision.optional("hidden", 0);
  EXPECT_EQ(error_of<InvalidInput>([&] { vision.finish(); }),
            "model.toml: vision.hiden: unknown key, did you mean 'hidden'?");
  EXPECT_NO_THROW(reader.finish());
}

TEST(ObjectReader, TakesNullAsAbsent) {
  const Json document = parse_json(R"({"a": null})", "f");
  ObjectReader reader(document, "f");
  EXPECT_FALSE(reader.has("a"));
  EXPECT_EQ(reader.optional("a", 5), 5);
  EXPECT_THROW(reader.required<int>("a"), InvalidInput);
  EXPECT_NO_THROW(reader.finish());
}

TEST(ObjectReader, RefusesWrongTypes) {
  const Json document = parse_json(
      R"({"text": "5", "half": 0.5, "flag": 1, "list": 3, "table": [], "name": 4})", "f");
  ObjectReader reader(document, "f.json");
  EXPECT_EQ(error_of<InvalidInput>([&] { reader.required<int>("text"); }),
            "f.json: text: \"5\" is a string, but an integer is needed");
  EXPECT_EQ(error_of<InvalidInput>([&] { reader.required<int>("half"); }),
            "f.json: half: 0.5 is a number with a fraction, but an integer is needed");
  EXPECT_THROW(reader.required<double>("text"), InvalidInput);
  EXPECT_THROW(reader.required<bool>("flag"), InvalidInput);
  EXPECT_THROW(reader.required<std::string>("name"), InvalidInput);
  EXPECT_THROW(reader.array("list"), InvalidInput);
  EXPECT_THROW(reader.object("table"), InvalidInput);
  EXPECT_EQ(error_of<InvalidInput>([&] { ObjectReader(document["list"], "f.json: list"); }),
            "f.json: list: 3 is an integer, but a table is needed");
}

TEST(ObjectReader, RefusesIntegersOutOfRange) {
  const Json document =
      parse_json(R"({"a": 2147483648, "b": -1, "c": 9223372036854775808, "d": 2147483647})", "f");
  ObjectReader reader(document, "f");
  EXPECT_EQ(error_of<InvalidInput>([&] { reader.required<int>("a"); }),
            "f: a: 2147483648 is out of range; allowed: -2147483648 to 2147483647");
  EXPECT_THROW(reader.required<std::uint64_t>("b"), InvalidInput);
  EXPECT_THROW(reader.required<std::int64_t>("c"), InvalidInput);
  EXPECT_EQ(reader.required<int>("d"), 2147483647);
}

TEST(ObjectReader, NumbersTheElementsOfLists) {
  const Json document = parse_json(R"({"lanes": [[1], [2, "x"]]})", "p");
  ObjectReader reader(document, "plan.json");
  const auto lanes = reader.array("lanes");
  ASSERT_EQ(lanes.size(), 2U);
  const auto second = elements_of(*lanes[1].first, lanes[1].second);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(error_of<InvalidInput>([&] { value_as<int>(*second[1].first, second[1].second); }),
            "plan.json: lanes[1][1]: \"x\" is a string, but an integer is needed");
  EXPECT_TRUE(reader.array("absent").empty());
}

TEST(ObjectReader, AddsTheKeyToAMessage) {
  const Json document = Json::object();
  const ObjectReader reader(document, "f");
  EXPECT_EQ(error_of<InvalidInput>([&] { reader.fail("a", "too small"); }), "f: a: too small");
}

TEST(KeyPath, SeparatesFileFromPath) {
  EXPECT_EQ(key_path("f.toml", "a"), "f.toml: a");
  EXPECT_EQ(key_path("f.toml: a", "b"), "f.toml: a.b");
  EXPECT_EQ(key_path("f.toml: a[2]", "b"), "f.toml: a[2].b");
}

// What reading two required keys of this TOML text says.
std::string missing_message(const std::string& text) {
  return oracle::error_of<InvalidInput>([&] {
    const Json document = parse_toml(text, "run.toml");
    ObjectReader reader(document, "run.toml");
    reader.required<int>("steps");
    ObjectReader data = reader.object("data");
    data.required<std::string>("train");
    data.required<int>("global_batch");
  });
}

TEST(ObjectReader, SuggestsTheMisspelledKeyWhereOneIsMissing) {
  EXPECT_EQ(missing_message("steps = 1\n[data]\ntrain = 'x'\nglobl_batch = 8\n"),
            "run.toml: data.global_batch: missing; there is a key 'globl_batch', did you mean "
            "'global_batch'?");
  EXPECT_EQ(missing_message("setps = 1\n[data]\n"),
            "run.toml: steps: missing; there is a key 'setps', did you mean 'steps'?");
  EXPECT_EQ(missing_message("steps = 1\n[dta]\n"),
            "run.toml: data: missing; there is a key 'dta', did you mean 'data'?");
  EXPECT_EQ(missing_message("steps = 1\n[data]\ntrain = 'x'\nother = 8\n"),
            "run.toml: data.global_batch: missing");
  EXPECT_EQ(missing_message("steps = 1\n[data]\ntrain = 'x'\nglobal_batches_all = 8\n"),
            "run.toml: data.global_batch: missing")
      << "another key";
}

}  // namespace
}  // namespace entrain
