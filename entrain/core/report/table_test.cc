#include "entrain/core/report/table.h"

#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

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

TEST(FormatFixed, RoundsAndHidesWhatIsNoNumber) {
  EXPECT_EQ(format_fixed(1.256, 2), "1.26");
  EXPECT_EQ(format_fixed(-3, 0), "-3");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::infinity(), 2), "-");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::quiet_NaN(), 2), "-");
}

}  // namespace
}  // namespace entrain
