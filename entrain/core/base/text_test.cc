#include "entrain/core/base/text.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(Concat, JoinsPrintableValues) {
  EXPECT_EQ(concat("stage ", 3, " of ", 2.5, ' ', true), "stage 3 of 2.5 1");
}

TEST(Join, PutsSeparatorsBetween) {
  const std::vector<std::string> three = {"a", "b", "c"};
  EXPECT_EQ(join(three), "a, b, c");
  EXPECT_EQ(join(three, "|"), "a|b|c");
  EXPECT_EQ(join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join(std::vector<std::string>{}), "");
}

TEST(Suggestion, NamesTheClosestWord) {
  const std::vector<std::string> allowed = {"num_layers", "num_heads", "hidden"};
  EXPECT_EQ(suggestion("num_layer", allowed), ", did you mean 'num_layers'?");
  EXPECT_EQ(suggestion("hiden", allowed), ", did you mean 'hidden'?");
  EXPECT_EQ(suggestion("num_haeds", allowed), ", did you mean 'num_heads'?");
}

TEST(Suggestion, ListsWhatIsAllowedWhenNothingIsClose) {
  const std::vector<std::string> allowed = {"num_layers", "hidden"};
  EXPECT_EQ(suggestion("colour", allowed), "; allowed: num_layers, hidden");
  EXPECT_EQ(suggestion("", allowed), "; allowed: num_layers, hidden");
  EXPECT_EQ(suggestion("colour", {}), "");
}

TEST(Suggestion, AllowsOneMistakeInShortWords) {
  const std::vector<std::string> allowed = {"lr"};
  EXPECT_EQ(suggestion("l", allowed), ", did you mean 'lr'?");
  EXPECT_EQ(suggestion("xy", allowed), "; allowed: lr");
}

TEST(Suggestion, TakesASwapOfNeighboursForOneMistake) {
  const std::vector<std::string> keys = {"train", "steps", "validation"};
  EXPECT_EQ(suggestion("trian", keys), ", did you mean 'train'?");
  EXPECT_EQ(suggestion("setps", keys), ", did you mean 'steps'?");
  EXPECT_EQ(suggestion("sptes", keys), "; allowed: train, steps, validation") << "two of them";
}

TEST(FormatDuration, PicksTheUnit) {
  EXPECT_EQ(format_duration(nanoseconds(0)), "0 ns");
  EXPECT_EQ(format_duration(nanoseconds(9)), "9 ns");
  EXPECT_EQ(format_duration(nanoseconds(999)), "999 ns");
  EXPECT_EQ(format_duration(nanoseconds(7'800)), "7.8 us");
  EXPECT_EQ(format_duration(nanoseconds(45'600'000)), "45.6 ms");
  EXPECT_EQ(format_duration(nanoseconds(1'230'000'000)), "1.23 s");
  EXPECT_EQ(format_duration(nanoseconds(-1'230'000'000)), "-1.23 s");
  EXPECT_EQ(format_duration(std::chrono::hours(1)), "3.6e+03 s");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 29U), "1.5 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 60U), "1048576.0 TiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(12'345'678), "12,345,678");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(-1000), "-1,000");
}

TEST(Counted, PutsOneInTheSingular) {
  EXPECT_EQ(counted(1, "lane"), "1 lane");
  EXPECT_EQ(counted(0, "lane"), "0 lanes");
  EXPECT_EQ(counted(12'345, "left-out sample"), "12,345 left-out samples");
  EXPECT_EQ(counted(2, "batch"), "2 batches");
  EXPECT_EQ(counted(2, "process"), "2 processes");
  EXPECT_EQ(counted(2, "epoch"), "2 epochs");
}

TEST(Split, CutsAtEverySeparator) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a;b", ';'), (Parts{"a", "b"}));
  EXPECT_EQ(split("a", ';'), (Parts{"a"}));
  EXPECT_EQ(split(";a;", ';'), (Parts{"", "a", ""}));
  EXPECT_EQ(split(";", ';'), (Parts{"", ""}));
  EXPECT_EQ(split("", ';'), Parts{});
}

}  // namespace
}  // namespace entrain
