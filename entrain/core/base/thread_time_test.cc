#include "entrain/core/base/thread_time.h"

#include <thread>

#include <gtest/gtest.h>

namespace entrain {
namespace {

using std::chrono::milliseconds;

TEST(ThreadTime, CountsWorkAndNotSleep) {
  const auto start = thread_time();
  std::this_thread::sleep_for(milliseconds(30));
  const auto slept = thread_time() - start;
  EXPECT_LT(slept, milliseconds(20));
  while (thread_time() - start < slept + milliseconds(5)) {
  }
  EXPECT_GE(thread_time() - start, milliseconds(5));
}

TEST(ThreadTime, IsThatOfTheCallingThread) {
  const auto start = thread_time();
  std::thread other([] {
    const auto begun = thread_time();
    while (thread_time() - begun < milliseconds(30)) {
    }
  });
  other.join();
  EXPECT_LT(thread_time() - start, milliseconds(20));
}

}  // namespace
}  // namespace entrain
