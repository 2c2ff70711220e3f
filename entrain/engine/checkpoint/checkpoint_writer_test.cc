#include "entrain/engine/checkpoint/checkpoint_writer.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
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

void submit_all(CheckpointWriter& writer, std::int64_t step) {
  for (LaneSnapshot& lane : tiny::checkpoint_lanes(step)) {
    writer.submit(step, std::move(lane));
  }
}

TEST(CheckpointWriter, WritesWhatEveryLaneHandedIn) {
  const oracle::TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2, 2, tiny::checkpoint_run());
  EXPECT_TRUE(writer.last_written().empty());
  for (const std::int64_t step : {10, 20, 30}) {
    submit_all(writer, step);
    writer.approve(step);
  }
  writer.finish();
  EXPECT_EQ(writer.last_written(), folder.path() / checkpoint_name(30));
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{20, 30}));
  const auto usable = newest_usable(folder.path());
  EXPECT_EQ(usable->manifest.step, 30);
  EXPECT_EQ(usable->manifest.run.seed, 3U);
  const LaneSnapshot lane = tiny::checkpoint_lanes(30)[1];
  const at::Tensor target = at::zeros_like(lane.weights[0].tensor);
  load_tensors(usable->path, usable->manifest, {{lane.weights[0].name, target}});
  EXPECT_TRUE(at::equal(target, lane.weights[0].tensor));
}

// Two writers as two processes have them, one folder.
TEST(CheckpointWriter, CommitsOnceLanesOfOtherProcessesHaveHandedIn) {
  const oracle::TemporaryFolder folder;
  const CheckpointRun run = tiny::checkpoint_run();
  CheckpointWriter first(folder.path(), 2, 2, run, 0);
  {
    CheckpointWriter second(folder.path(), 2, 2, run, 1);
    for (const std::int64_t step : {10, 20, 30}) {
      second.submit(step, tiny::checkpoint_lanes(step)[1]);
      second.approve(step);
      first.submit(step, tiny::checkpoint_lanes(step)[0]);
      first.approve(step);
    }
    second.finish();
    EXPECT_TRUE(second.last_written().empty());
  }
  first.finish();
  EXPECT_EQ(first.last_written(), folder.path() / checkpoint_name(30));
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{20, 30}));
  EXPECT_TRUE(verify_latest(folder.path()).empty());
  const auto usable = newest_usable(folder.path());
  ASSERT_EQ(usable->manifest.lanes.size(), 2U);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(usable->path)) {
    files += entry.path().filename() != kManifestName ? 1 : 0;
  }
  EXPECT_EQ(files, 4) << "reports are left over";
  const LaneSnapshot lane = tiny::checkpoint_lanes(30)[1];
  const at::Tensor target = at::zeros_like(lane.weights[0].tensor);
  load_tensors(usable->path, usable->manifest, {{lane.weights[0].name, target}});
  EXPECT_TRUE(at::equal(target, lane.weights[0].tensor));
}

TEST(CheckpointWriter, GivesUpWhenAnotherProcessNeverHandsIn) {
  const oracle::TemporaryFolder folder;
  {
    CheckpointWriter first(folder.path() / "c", 2, 2, tiny::checkpoint_run(), 0);
    first.submit(10, tiny::checkpoint_lanes(10)[0]);
    first.approve(10);
    for (int wait = 0; wait < 2'000 && !fs::exists(partial_path(folder.path() / "c", 10)); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_EQ(checkpoint_steps(folder.path() / "c"), Steps{});
}

TEST(CheckpointWriter, WritesNothingThatLacksALaneOrTheApproval) {
  const oracle::TemporaryFolder folder;
  {
    CheckpointWriter writer(folder.path() / "c", 2, 2, tiny::checkpoint_run());
    submit_all(writer, 10);
    writer.submit(20, tiny::checkpoint_lanes(20)[0]);
    writer.approve(9);
    writer.finish();
    EXPECT_TRUE(writer.last_written().empty());
  }
  EXPECT_FALSE(fs::exists(folder.path() / "c"));
}

TEST(CheckpointWriter, WaitsForEveryLane) {
  const oracle::TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 2, 2, tiny::checkpoint_run());
  std::vector<LaneSnapshot> lanes = tiny::checkpoint_lanes(10);
  writer.approve(10);
  writer.submit(10, lanes[1]);
  writer.finish();
  EXPECT_TRUE(writer.last_written().empty());
  writer.submit(10, lanes[0]);
  writer.finish();
  EXPECT_TRUE(verify_checkpoint(folder.path() / checkpoint_name(10)).ok());
}

TEST(CheckpointWriter, FinishesWhatIsApprovedWhenItGoes) {
  const oracle::TemporaryFolder folder;
  {
    CheckpointWriter writer(folder.path(), 2, 2, tiny::checkpoint_run());
    submit_all(writer, 10);
    writer.approve(10);
  }
  EXPECT_EQ(newest_usable(folder.path())->manifest.step, 10);
}

// A rank that was killed with its part of one checkpoint: lane 0's would wait for it, and the ranks
// for the next.
TEST(CheckpointWriter, GivesUpOnALaneOfAnotherProcessThatDoesNotCome) {
  const oracle::TemporaryFolder folder;
  CheckpointWriter writer(
      folder.path() / "c", 2, 2, tiny::checkpoint_run(), 0, std::chrono::milliseconds(100));
  writer.approve(10);
  writer.submit(10, tiny::checkpoint_lanes(10)[0]);
  const std::string message =
      error_of<SystemFailure>([&] { writer.submit(20, tiny::checkpoint_lanes(20)[0]); });
  EXPECT_NE(message.find("not all of its 2 lanes arrived within 100"), std::string::npos)
      << message;
  EXPECT_NE(message.find("checkpoint of step 10"), std::string::npos) << message;
  EXPECT_EQ(checkpoint_steps(folder.path() / "c"), Steps{});
  EXPECT_FALSE(fs::exists(partial_path(folder.path() / "c", 10)));
}

// Once the failure is known nobody waits for the deadline, neither the rank nor the writing.
TEST(CheckpointWriter, EndsAtOnceWhenAnotherRankIsKnownToHaveFailed) {
  for (const bool waits : {true, false}) {
    const oracle::TemporaryFolder folder;
    const auto rank = std::this_thread::get_id();
    std::atomic<bool> failed{false};  // from the first question of who shall see it first
    CheckpointWriter writer(
        folder.path() / "c", 2, 2, tiny::checkpoint_run(), 0, std::chrono::minutes(3), [&] {
          if ((std::this_thread::get_id() == rank) == waits) {
            failed = true;
          }
          if (failed) {
            throw InternalError("rank 1 has gone");
          }
        });
    writer.approve(10);
    writer.submit(10, tiny::checkpoint_lanes(10)[0]);
    const auto begin = std::chrono::steady_clock::now();
    while (!waits && !failed &&
           std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)) {
      std::this_thread::yield();
    }
    EXPECT_NE(failed, waits);
    const std::string message = error_of<InternalError>([&] { writer.finish(); });
    EXPECT_EQ(message, "rank 1 has gone");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
    EXPECT_EQ(checkpoint_steps(folder.path() / "c"), Steps{});
  }
}

TEST(CheckpointWriter, ReportsToAllThatItCannotWrite) {
  const oracle::TemporaryFolder folder;
  const fs::path in_the_way = folder.write("file", "in the way");
  CheckpointWriter writer(in_the_way, 2, 2, tiny::checkpoint_run());
  submit_all(writer, 10);
  writer.approve(10);
  const std::string message = error_of<SystemFailure>([&] { writer.finish(); });
  EXPECT_NE(message.find("checkpoint of step 10 in '" + in_the_way.string()), std::string::npos)
      << message;
  EXPECT_NE(message.find("earlier checkpoints are unchanged"), std::string::npos) << message;
  EXPECT_THROW(writer.check(), SystemFailure);
  EXPECT_THROW(writer.submit(20, tiny::checkpoint_lanes(20)[0]), SystemFailure);
}

// A folder that the process may read, not write: what was there stays usable.
TEST(CheckpointWriter, LeavesAReadOnlyFolderAlone) {
  const oracle::TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::others_all);
  tiny::write_checkpoint(folder.path(), 10);
  fs::permissions(folder.path(), static_cast<fs::perms>(0555));
  const bool root = ::geteuid() == 0;
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);  // root may write anywhere
  std::string message;
  {
    CheckpointWriter writer(folder.path(), 2, 2, tiny::checkpoint_run());
    submit_all(writer, 20);
    writer.approve(20);
    message = error_of<SystemFailure>([&] { writer.finish(); });
  }
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_NE(message.find("Permission denied"), std::string::npos) << message;
  EXPECT_EQ(newest_usable(folder.path())->manifest.step, 10);
  EXPECT_TRUE(newest_usable(folder.path())->warnings.empty());
}

}  // namespace
}  // namespace entrain::engine
