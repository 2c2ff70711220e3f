#include "entrain/core/base/csv.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

TEST(CsvReader, ReadsRowsWithTheirLines) {
  CsvReader csv("a,b\n1,2\n\n3,\n", "x.csv");
  EXPECT_EQ(csv.columns(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(csv.column("b"), 1);
  EXPECT_EQ(csv.column("c"), -1);
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.field(0), "1");
  EXPECT_EQ(csv.field(1), "2");
  EXPECT_EQ(csv.line(), 2);
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.field(1), "");
  EXPECT_EQ(csv.line(), 4);
  EXPECT_FALSE(csv.next());
}

TEST(CsvReader, AcceptsWindowsLineEndsByteOrderMarksAndMissingLastLineEnds) {
  CsvReader csv(
      "\xEF\xBB\xBF"
      "a,b\r\n1,\"2\"\r\n3,4",
      "x.csv");
  EXPECT_EQ(csv.columns()[0], "a");
  EXPECT_EQ(csv.columns()[1], "b");
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.field(1), "2");
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.field(1), "4");
  EXPECT_FALSE(csv.next());
}

TEST(CsvReader, UnquotesFieldsOverSeveralLines) {
  CsvReader csv("a,b\n\"x,\"\"y\"\"\nz\",2\n3,4\n", "x.csv");
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.field(0), "x,\"y\"\nz");
  EXPECT_EQ(csv.field(1), "2");
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.line(), 4);
}

TEST(CsvReader, BringsWrittenFieldsBack) {
  const std::vector<std::string> fields = {"plain", "", "a,b", "\"", "x\ny", "r\r", " blank "};
  std::string text;
  append_csv_row(text, std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"});
  append_csv_row(text, fields);
  CsvReader csv(text, "x.csv");
  ASSERT_TRUE(csv.next());
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(csv.field(i), fields[static_cast<std::size_t>(i)]);
  }
}

TEST(CsvReader, RefusesDamagedTablesAndNamesFileAndLine) {
  const auto read_all = [](const char* text) {
    CsvReader csv(text, "x.csv");
    while (csv.next()) {
    }
  };
  const auto message = [&](const char* text) {
    return error_of<InvalidInput>([&] { read_all(text); });
  };
  EXPECT_NE(message("").find("x.csv"), std::string::npos);
  EXPECT_NE(message("a,a\n").find("'a' occurs twice"), std::string::npos);
  EXPECT_NE(message("a,,b\n").find("column 2"), std::string::npos);
  EXPECT_NE(message("a,b\n1,2\n3\n").find("x.csv:3: 1 fields"), std::string::npos);
  EXPECT_NE(message("a,b\n1,2,3\n").find("x.csv:2: 3 fields"), std::string::npos);
  EXPECT_NE(message("a,b\n\"1,2\n").find("x.csv:2: a quoted"), std::string::npos);
  EXPECT_NE(message("a,b\n\"1\"x,2\n").find("x.csv:2: text follows"), std::string::npos);
}

}  // namespace
}  // namespace entrain
