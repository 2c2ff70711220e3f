#include "entrain/engine/pipeline/ranks.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

TEST(RunRanks, RunsEveryRankOnceWithOneThread) {
  ThreadCommGroup group(5);
  std::atomic<int> sum{0};
  run_ranks(group, [&](int rank) {
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(group.comm(rank).rank(), rank);
    sum += 1 << rank;
  });
  EXPECT_EQ(sum, 31);
}

TEST(RunRanks, RethrowsTheFailureAndNotItsEchoes) {
  ThreadCommGroup group(4);
  std::atomic<int> stopped{0};
  const std::string message = error_of<InvalidInput>([&] {
    run_ranks(group, [&](int rank) {
      if (rank == 2) {
        throw InvalidInput("sample 'x' is damaged");
      }
      try {
        group.comm(rank).barrier({0, 1, 2, 3});
      } catch (const CommAborted& error) {
        EXPECT_NE(std::string(error.what()).find("rank 2: sample 'x' is damaged"),
                  std::string::npos);
        ++stopped;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "sample 'x' is damaged");
  EXPECT_EQ(stopped, 3);
}

TEST(RunRanks, KeepsTheFirstOfSeveralFailures) {
  ThreadCommGroup group(2);
  EXPECT_EQ(error_of<SystemFailure>([&] {
              run_ranks(group, [&](int rank) {
                if (rank == 1) {
                  // Becomes an echo: the communicator was ended by rank 0.
                  EXPECT_THROW(group.comm(1).barrier({0, 1}), CommAborted);
                  throw InvalidInput("second");
                }
                throw SystemFailure("first");
              });
            }),
            "first");
}

TEST(RunRanks, GivesUpOnRanksThatDoNotEndAfterAFailure) {
  ThreadCommGroup group(3);
  std::promise<void> release;
  std::vector<int> stuck_ranks;
  StuckRanks stuck;
  stuck.patience = std::chrono::milliseconds(1);
  stuck.give_up = [&](const std::string& failure, const std::vector<int>& ranks) {
    EXPECT_EQ(failure, "broken");
    stuck_ranks = ranks;
    release.set_value();  // so that this test can end; a process would end here
  };
  const std::string message = error_of<SystemFailure>([&] {
    run_ranks(
        group,
        [&](int rank) {
          if (rank == 1) {
            release.get_future().wait();
          } else if (rank == 2) {
            throw SystemFailure("broken");
          }
        },
        stuck);
  });
  EXPECT_EQ(message, "broken");
  EXPECT_EQ(std::ranges::count(stuck_ranks, 1), 1);
}

TEST(RunRanks, WaitsForRanksAsLongAsNoneFails) {
  ThreadCommGroup group(2);
  StuckRanks stuck;
  stuck.give_up = [](const std::string& failure, const std::vector<int>&) {
    ADD_FAILURE() << failure;
  };
  run_ranks(
      group,
      [&](int rank) {
        group.comm(rank).barrier({0, 1});
      },
      stuck);
}

TEST(RunRanks, ReportsAnAbortFromOutside) {
  ThreadCommGroup group(2);
  group.abort("stopped by hand");
  const std::string message = error_of<CommAborted>([&] {
    run_ranks(group, [&](int rank) { group.comm(rank).barrier({0, 1}); });
  });
  EXPECT_NE(message.find("stopped by hand"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain::engine
