#include "entrain/core/base/partial_files.h"

#include <csignal>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrain/core/base/files.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

TEST(PartialFiles, AreRemovedByASignalThatEndsTheProgram) {
  std::string pattern = (fs::temp_directory_path() / "entrain-partial-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  write_file(folder / "earlier", "kept");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      remove_partial_files_on_signals();
      write_file(folder / "earlier", [&](std::ostream& out) {
        out << "half" << std::flush;
        std::raise(signal);
      });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
    EXPECT_EQ(read_file(folder / "earlier"), "kept");
  }
  fs::remove_all(folder);
}

TEST(PartialFiles, MayBeMany) {
  for (int round = 0; round < 40; ++round) {
    const PartialFile first("a");
    const PartialFile second("b");
  }
  std::vector<std::unique_ptr<PartialFile>> many;
  for (int i = 0; i < 40; ++i) {
    many.push_back(std::make_unique<PartialFile>("x"));
  }
}

}  // namespace
}  // namespace entrain
