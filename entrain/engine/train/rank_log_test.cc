#include "entrain/engine/train/rank_log.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/files.h"

#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

TEST(RankLog, AppendsDatedLinesToTheRanksOwnFile) {
  const oracle::TemporaryFolder folder;
  {
    RankLog log(folder.path(), 3);
    log.line("first");
    EXPECT_NE(read_file(folder.path() / "logs" / "rank-3.log").find("first\n"), std::string::npos)
        << "a line is there before the log is closed";
  }
  RankLog(folder.path(), 3).line("after a restart");
  std::string lines = read_file(folder.path() / "logs" / "rank-3.log");
  std::replace_if(
      lines.begin(), lines.end(), [](char c) { return c >= '0' && c <= '9'; }, 'd');
  EXPECT_EQ(lines, "dddd-dd-ddTdd:dd:ddZ first\ndddd-dd-ddTdd:dd:ddZ after a restart\n");
}

TEST(RankLog, IsNoReasonToStop) {
  const oracle::TemporaryFolder folder;
  const std::filesystem::path file = folder.write("not-a-folder", "");
  RankLog log(file, 0);
  log.line("lost");
  RankLog().line("of a rank that is a thread");
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

}  // namespace
}  // namespace entrain::engine
