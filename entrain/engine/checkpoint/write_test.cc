#include "entrain/engine/checkpoint/write.h"

#include <atomic>
#include <csignal>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

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

bool never() {
  return false;
}

LaneSnapshot lane_of_step(int lane, std::int64_t step) {
  LaneSnapshot snapshot = tiny::checkpoint_lanes(step).at(1);
  snapshot.lane = lane;
  return snapshot;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(LaneReports, ArriveInOrderAndLeaveTheLanesFilesAlone) {
  const oracle::TemporaryFolder folder;
  const fs::path partial = begin_checkpoint(folder.path(), 6);
  hand_in_lane(folder.path(), 6, lane_of_step(2, 6));
  std::atomic<bool> waited{false};
  std::thread late([&] {
    while (!waited) {
      std::this_thread::yield();
    }
    hand_in_lane(folder.path(), 6, lane_of_step(1, 6));
  });
  const std::vector<LaneFiles> lanes = collect_lanes(folder.path(), 6, 3, [&] {
    waited = true;  // asked while lane 1 is missing
    return false;
  });
  late.join();
  ASSERT_EQ(lanes.size(), 2U);
  std::set<std::string> files;
  for (int lane = 1; lane < 3; ++lane) {
    const LaneFiles& of_lane = lanes[static_cast<std::size_t>(lane - 1)];
    const LaneFiles direct =
        write_lane(begin_checkpoint(folder.path(), 100), lane_of_step(lane, 6));
    ASSERT_EQ(of_lane.files.size(), direct.files.size());
    for (std::size_t i = 0; i < direct.files.size(); ++i) {
      EXPECT_EQ(of_lane.files[i].name, direct.files[i].name);
      EXPECT_EQ(of_lane.files[i].digest, direct.files[i].digest);
      files.insert(of_lane.files[i].name);
    }
    EXPECT_EQ(of_lane.tensors.size(), direct.tensors.size());
  }
  EXPECT_EQ(names_in(partial), files);
}

TEST(LaneReports, AreNotWaitedForOnceGivenUp) {
  const oracle::TemporaryFolder folder;
  begin_checkpoint(folder.path(), 6);
  hand_in_lane(folder.path(), 6, lane_of_step(1, 6));
  int asked = 0;
  EXPECT_TRUE(collect_lanes(folder.path(), 6, 3, [&] { return ++asked == 2; }).empty());
  EXPECT_EQ(asked, 2);
}

TEST(LaneReports, OfAnotherStepOrDamagedAreRefused) {
  const oracle::TemporaryFolder folder;
  const fs::path partial = begin_checkpoint(folder.path(), 6);
  const fs::path report = partial / "written-lane-1.json";
  hand_in_lane(folder.path(), 6, lane_of_step(1, 6));
  const std::string good = read_file(report);
  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 1;
  write_file(report, damaged);
  EXPECT_THROW(collect_lanes(folder.path(), 6, 2, never), InvalidInput);
  const fs::path other = begin_checkpoint(folder.path(), 7);
  write_file(other / "written-lane-1.json", good);
  EXPECT_THROW(collect_lanes(folder.path(), 7, 2, never), InvalidInput);
  write_file(report, good);
  EXPECT_EQ(collect_lanes(folder.path(), 6, 2, never).size(), 1U);
}

}  // namespace
}  // namespace entrain::engine
