#include "entrain/engine/checkpoint/lane_report.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "entrain/engine/checkpoint/layout.h"

#include "tests/oracle/engine/tiny_checkpoint.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

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
