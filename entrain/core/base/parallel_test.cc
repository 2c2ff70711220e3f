#include "entrain/core/base/parallel.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int threads : {1, 2, 5, 40}) {
    std::vector<std::atomic<int>> calls(17);
    parallel_for(17, threads, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    for (const std::atomic<int>& count : calls) {
      EXPECT_EQ(count.load(), 1);
    }
  }
  parallel_for(0, 3, [](std::int64_t) { FAIL() << "nothing to do"; });
}

TEST(ParallelFor, RunsCallsAtTheSameTime) {
  std::atomic<int> inside{0};
  parallel_for(2, 2, [&](std::int64_t) {
    ++inside;
    while (inside.load() < 2) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ParallelFor, HandsBackTheFailureOfTheLowestIndex) {
  // Both calls have begun when either fails.
  std::atomic<int> inside{0};
  const auto fail = [&](std::int64_t i) {
    ++inside;
    while (inside.load() < 2) {
      std::this_thread::yield();
    }
    throw InvalidInput(i == 0 ? "first" : "second");
  };
  EXPECT_EQ(oracle::error_of<InvalidInput>([&] { parallel_for(2, 2, fail); }), "first");
}

TEST(ParallelFor, StopsAfterAFailure) {
  int calls = 0;
  const auto fail = [&](std::int64_t) {
    ++calls;
    throw InvalidInput("at once");
  };
  oracle::error_of<InvalidInput>([&] { parallel_for(9, 1, fail); });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace entrain
