#include "entrain/engine/checkpoint/write.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/checkpoint/read.h"

#include "tests/oracle/engine/tiny_checkpoint.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

TEST(WriteCheckpoint, SnapshotsAreCopies) {
  const at::Tensor weight = at::ones({3});
  const LaneSnapshot snapshot = snapshot_of(1, {{"w", weight}}, {{"w.first_moment", weight}});
  weight.zero_();
  EXPECT_EQ(snapshot.weights[0].tensor.sum().item<float>(), 3.0F);
  EXPECT_EQ(snapshot.moments[0].tensor.sum().item<float>(), 3.0F);
}

TEST(WriteCheckpoint, KeepsTheNewestOnesAndLeavesNothingBeside) {
  const oracle::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) {
    tiny::write_checkpoint(folder.path(), step);
  }
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{20, 30}));
  EXPECT_EQ(read_latest(folder.path())->step, 30);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 3);
}

TEST(WriteCheckpoint, ReplacesOneOfTheSameStep) {
  const oracle::TemporaryFolder folder;
  tiny::write_checkpoint(folder.path(), 10);
  tiny::write_checkpoint(folder.path(), 20);
  fs::resize_file(folder.path() / checkpoint_name(20) / kManifestName, 10);
  tiny::write_checkpoint(folder.path(), 20);
  EXPECT_TRUE(verify_checkpoint(folder.path() / checkpoint_name(20)).ok());
  EXPECT_TRUE(verify_latest(folder.path()).empty());
}

TEST(WriteCheckpoint, SaysWhyItCannot) {
  const oracle::TemporaryFolder folder;
  const fs::path in_the_way = folder.write("file", "in the way");
  const std::string message = error_of<SystemFailure>([&] { begin_checkpoint(in_the_way, 10); });
  EXPECT_NE(message.find(in_the_way.string()), std::string::npos) << message;
}

// The kernel ends the child at the very byte that goes beyond the limit of a file's size, as a kill
// in the middle of a write would.
TEST(WriteCheckpoint, AKillAtAnyByteLeavesTheOneBefore) {
  const oracle::TemporaryFolder folder;
  tiny::write_checkpoint(folder.path(), 10);
  std::uintmax_t largest = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / checkpoint_name(10))) {
    largest = std::max(largest, entry.file_size());
  }
  int killed = 0;
  for (std::uintmax_t bytes = 0; bytes < largest; bytes += std::max<std::uintmax_t>(1, bytes / 4)) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit = {bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      tiny::write_checkpoint(folder.path(), 20);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << bytes;
    ++killed;
    const auto usable = newest_usable(folder.path());
    ASSERT_TRUE(usable.has_value()) << bytes;
    EXPECT_EQ(usable->manifest.step, 10) << bytes;
    EXPECT_TRUE(usable->warnings.empty()) << bytes;
  }
  EXPECT_GE(killed, 20);
  tiny::write_checkpoint(folder.path(), 20);
  EXPECT_EQ(newest_usable(folder.path())->manifest.step, 20);
}

// The same limit where the signal is ignored: the write fails as it does on a full disk.
TEST(WriteCheckpoint, AFullDiskIsAnErrorThatLeavesTheOneBefore) {
  const oracle::TemporaryFolder folder;
  tiny::write_checkpoint(folder.path(), 10);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {4'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message =
      error_of<SystemFailure>([&] { tiny::write_checkpoint(folder.path(), 20); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_NE(message.find(".safetensors"), std::string::npos) << message;
  EXPECT_EQ(newest_usable(folder.path())->manifest.step, 10);
}

}  // namespace
}  // namespace entrain::engine
