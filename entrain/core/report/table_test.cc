#include "entrain/core/report/table.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

TEST(Table, AlignsNumbersRightAndTextLeft) {
  Table table({"policy", "time", "gain", "note"});
  table.add_row({"entrain", "9.5 ms", "1.20x", ""});
  table.add_row({"lpt-2d", "11.0 ms", "-", "base"});
  EXPECT_EQ(table.to_text(),
            "policy      time   gain  note\n"
            "-------  -------  -----  ----\n"
            "entrain   9.5 ms  1.20x\n"
            "lpt-2d   11.0 ms      -  base\n");
}

TEST(Table, TakesAColumnWithOneWordAsText) {
  Table table({"a"});
  table.add_row({"12"});
  table.add_row({"many"});
  EXPECT_EQ(table.to_text(), "a\n----\n12\nmany\n");
}

TEST(Table, CountsCodePoints) {
  Table table({"name", "n"});
  table.add_row({"µ", "1"});
  EXPECT_EQ(table.to_text(), "name  n\n----  -\nµ     1\n");
}

TEST(Table, ShowsAHeaderWithoutRows) {
  EXPECT_EQ(Table({"a", "bc"}).to_text(), "a  bc\n-  --\n");
}

TEST(Table, RefusesRowsOfAnotherWidth) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add_row({"1"}), InternalError);
}

TEST(Table, IsCutWhereItIsTooWide) {
  Table table({"policy", "schedule", "a", "b"}, 2);
  const std::string wide(30, 'x');
  table.add_row({"entrain", "1f1b", wide, wide});
  table.add_row({"lpt", "1f1b", std::string(50, '9'), wide});
  Table narrow({"policy", "schedule", "a", "b", "c"}, 2);
  narrow.add_row({"entrain", "1f1b", wide, wide, wide});
  const std::string text = narrow.to_text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;
  EXPECT_EQ(text.substr(text.find("\n\n") + 2),
            "policy   schedule  c\n"
            "-------  --------  ------------------------------\n"
            "entrain      1f1b  " +
                wide + "\n");
  for (const std::string& shown : {table.to_text(), text}) {
    for (const std::string_view line : split(shown, '\n')) {
      EXPECT_LE(line.size(), kMostColumns + 2) << shown;  // "…" is three bytes
    }
  }
  EXPECT_NE(table.to_text().find("999999999999999…9999999999999999"), std::string::npos);
}

TEST(Wrap, BreaksLinesAtBlanks) {
  const std::string word(30, 'w');
  const std::string line = word + " " + word + " " + word;
  EXPECT_EQ(wrap(line + "\n"), line + "\n");
  EXPECT_EQ(wrap(" " + line + " " + word + "\nshort\n"), " " + line + "\n   " + word + "\nshort\n");
  EXPECT_EQ(wrap("a"), "a\n");
  EXPECT_EQ(wrap("\n\n"), "\n\n");
  const std::string long_word(120, 'w');
  EXPECT_EQ(wrap(long_word + " b"), long_word + "\n  b\n");
  EXPECT_EQ(wrap(""), "");
}

TEST(FormatRange, IsOneNumberWhereAllAre) {
  EXPECT_EQ(format_range(std::vector<int>{32, 28, 30}), "28-32");
  EXPECT_EQ(format_range(std::vector<int>{4, 4}), "4");
  EXPECT_EQ(format_range({}), "-");
}

TEST(FormatFixed, RoundsAndHidesWhatIsNoNumber) {
  EXPECT_EQ(format_fixed(1.256, 2), "1.26");
  EXPECT_EQ(format_fixed(-3, 0), "-3");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::infinity(), 2), "-");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::quiet_NaN(), 2), "-");
}

}  // namespace
}  // namespace entrain
