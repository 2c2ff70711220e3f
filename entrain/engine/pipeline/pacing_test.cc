#include "entrain/engine/pipeline/pacing.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(WaitUntil, NeverReturnsEarly) {
  using Clock = std::chrono::steady_clock;
  for (const int microseconds : {-50, 0, 20, 500, 3000}) {
    const Clock::time_point target = Clock::now() + std::chrono::microseconds(microseconds);
    wait_until(target);
    EXPECT_GE(Clock::now(), target);
  }
}

}  // namespace
}  // namespace entrain::engine
