#include "entrain/core/base/gzip.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/files.h"

#include "tests/oracle/shards.h"

namespace entrain {
namespace {

TEST(Gzip, IsReadAgain) {
  const oracle::TemporaryFolder folder;
  std::string long_text;
  for (int i = 0; i < 100'000; ++i) {
    long_text += std::to_string(i * 7919 % 1000) + ",";
  }
  for (const std::string& text : {std::string(), std::string("a\0b", 3), long_text}) {
    const std::string bytes = gzip(text);
    EXPECT_EQ(bytes.substr(0, 2), "\x1f\x8b");
    EXPECT_EQ(read_file(folder.write("text.gz", bytes)), text);
    EXPECT_EQ(gzip(text), bytes);
  }
  EXPECT_LT(gzip(long_text).size(), long_text.size() / 2);
}

}  // namespace
}  // namespace entrain
