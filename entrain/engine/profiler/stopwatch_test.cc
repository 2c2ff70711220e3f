#include "entrain/engine/profiler/stopwatch.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(Stopwatch, CountsWorkAndNotWaiting) {
  Stopwatch watch(at::kCPU);
  watch.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(watch.stop(), 20e6) << "a sleeping thread has no processor time";
  watch.start();
  volatile double sum = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    sum = sum + i;
  }
  EXPECT_GT(watch.stop(), 1e5);
}

TEST(Stopwatch, ReadsTheClockItIsGiven) {
  double now = 5;
  Stopwatch watch(at::kCPU, [&now] { return now; });
  watch.start();
  now = 12.5;
  EXPECT_EQ(watch.stop(), 7.5);
}

}  // namespace
}  // namespace entrain::engine
