#include "entrain/engine/train/dumps.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/report/doctor.h"

#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

// Two replicas of two lanes.
Plan plan_of_four() {
  Plan plan;
  plan.replicas = 2;
  plan.modules = {{"vision", 1, 1, {{0, 1}}}, {"llm", 1, 1, {{0, 1}}}};
  plan.lanes = {{{0, 0}}, {{1, 0}}};
  return plan;
}

class Dumps : public testing::Test {
 protected:
  [[nodiscard]] bool dumped(int rank) const { return fs::exists(dump_path(folder_.path(), rank)); }
  [[nodiscard]] RankDump dump_of(int rank) const {
    const fs::path path = dump_path(folder_.path(), rank);
    return rank_dump_from_json(read_json_file(path), path.string());
  }
  static void run(RunDumps& dumps, int rank, const std::function<void()>& body) {
    dumps.begin(rank);
    try {
      body();
      dumps.finish(rank);
    } catch (...) {
      dumps.fail(rank);
      throw;
    }
  }
  // Whether it holds within a minute.
  static bool comes_true(const std::function<bool()>& holds) {
    for (int i = 0; i < 12'000 && !holds(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return holds();
  }

  oracle::TemporaryFolder folder_;
};

TEST_F(Dumps, TheFirstFailureLeavesThoseOfAllRanks) {
  RunDumps dumps(folder_.path(), plan_of_four(), 0, 4);
  LoggedCall call;
  call.step = 7;
  call.what = "forward llm 0 slot 2 group 0";
  dumps.log(2).begin(call);
  EXPECT_THROW(run(dumps, 3, [] { throw SystemFailure("the disk is full"); }), SystemFailure);
  EXPECT_EQ(dump_of(3).state, RankState::kFailed);
  EXPECT_EQ(dump_of(3).failure, "the disk is full");
  EXPECT_EQ(dump_of(3).place, "replica 1 lane 1");
  EXPECT_EQ(dump_of(3).num_ranks, 4);
  EXPECT_EQ(dump_of(2).state, RankState::kRunning);
  EXPECT_EQ(dump_of(2).place, "replica 1 lane 0");
  ASSERT_EQ(dump_of(2).calls.size(), 1U);
  EXPECT_EQ(dump_of(2).calls[0].what, call.what);
  EXPECT_EQ(dump_of(0).failure, "");
  // What fails by that is no second cause.
  EXPECT_THROW(run(dumps, 2, [] { throw SystemFailure("rank 3 has gone"); }), SystemFailure);
  EXPECT_EQ(dump_of(2).state, RankState::kRunning);
}

TEST_F(Dumps, ARankThatVanishedLeavesNone) {
  RunDumps dumps(folder_.path(), plan_of_four(), 0, 4);
  EXPECT_THROW(run(dumps, 1, [] { throw RankVanished(); }), RankVanished);
  EXPECT_FALSE(dumped(0));
  EXPECT_THROW(run(dumps, 0, [] { throw SystemFailure("rank 1 does not answer"); }), SystemFailure);
  EXPECT_TRUE(dumped(0));
  EXPECT_FALSE(dumped(1));
}

TEST_F(Dumps, OfTheLastFiveFailuresAreKept) {
  keep_dumps(folder_.path());  // nothing to keep
  EXPECT_FALSE(fs::exists(dump_path(folder_.path(), 0).parent_path()));
  for (int failure = 1; failure <= 7; ++failure) {
    for (int rank = 0; rank < 2; ++rank) {
      write_file(dump_path(folder_.path(), rank), std::to_string(failure));
    }
    keep_dumps(folder_.path());
    EXPECT_FALSE(dumped(0));
    EXPECT_EQ(failures_in(folder_.path()).back(), failure);
    EXPECT_EQ(find_dumps(folder_.path()), failure_path(folder_.path(), failure));
    EXPECT_EQ(read_file(failure_path(folder_.path(), failure) / "rank-1.json"),
              std::to_string(failure));
  }
  EXPECT_EQ(failures_in(folder_.path()), (std::vector<std::int64_t>{3, 4, 5, 6, 7}));
  write_file(dump_path(folder_.path(), 0), "the run's own");
  EXPECT_EQ(find_dumps(folder_.path()), dump_path(folder_.path(), 0).parent_path());
}

TEST_F(Dumps, OnRequestComeAtOnceAndGoWhenAllEndWell) {
  RunDumps dumps(folder_.path(), plan_of_four(), 0, 2);
  dumps.watch_signals();
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  ASSERT_TRUE(comes_true([&] { return dumped(0) && dumped(1); }));
  EXPECT_EQ(dump_of(0).failure, "dumped on request");
  EXPECT_EQ(dump_of(0).state, RankState::kRunning);
  run(dumps, 0, [] {});
  EXPECT_TRUE(dumped(0)) << "rank 1 still runs";
  run(dumps, 1, [] {});
  EXPECT_FALSE(dumped(0));
  EXPECT_FALSE(dumped(1));
}

TEST_F(Dumps, OfAFailureStayWhenTheOthersEndWell) {
  RunDumps dumps(folder_.path(), plan_of_four(), 0, 2);
  EXPECT_THROW(run(dumps, 0, [] { throw SystemFailure("broken"); }), SystemFailure);
  run(dumps, 1, [] {});
  EXPECT_TRUE(dumped(0));
  EXPECT_TRUE(dumped(1));
}

using DumpsDeathTest = Dumps;

TEST_F(DumpsDeathTest, ASignalThatKillsLeavesThemWithItsRank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The child runs this test from its start, and must write where this process looks.
  ::setenv("ENTRAIN_DUMPS_TEST_FOLDER", folder_.path().c_str(), 0);
  const std::string folder = std::getenv("ENTRAIN_DUMPS_TEST_FOLDER");
  EXPECT_EXIT(
      {
        RunDumps dumps(folder, plan_of_four(), 0, 2);
        dumps.watch_signals();
        run(dumps, 1, [] { std::raise(SIGSEGV); });
      },
      testing::KilledBySignal(SIGSEGV),
      "");
  ::unsetenv("ENTRAIN_DUMPS_TEST_FOLDER");
  const fs::path path = dump_path(folder, 1);
  ASSERT_TRUE(fs::exists(path));
  const RankDump dump = rank_dump_from_json(read_json_file(path), path.string());
  EXPECT_EQ(dump.state, RankState::kFailed);
  EXPECT_NE(dump.failure.find("signal 11"), std::string::npos) << dump.failure;
  EXPECT_TRUE(fs::exists(dump_path(folder, 0)));
}

}  // namespace
}  // namespace entrain::engine
