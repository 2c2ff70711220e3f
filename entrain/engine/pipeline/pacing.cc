#include "entrain/engine/pipeline/pacing.h"

#include <thread>

#include <sys/prctl.h>

namespace entrain::engine {
namespace {

// The kernel wakes a sleeping thread up to 50 µs late, so that wake-ups can be brought together.
// Asked once a thread not to; where it refuses, the thread is late as before.
void sleep_punctually() {
  thread_local const int asked = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  static_cast<void>(asked);
}

}  // namespace

void wait_until(std::chrono::steady_clock::time_point target) {
  using Clock = std::chrono::steady_clock;
  // About what a sleeping thread oversleeps on an idle machine.
  constexpr std::chrono::microseconds kSpin{100};
  if (target - Clock::now() > kSpin) {
    sleep_punctually();
    std::this_thread::sleep_until(target - kSpin);
  }
  while (Clock::now() < target) {
    std::this_thread::yield();
  }
}

}  // namespace entrain::engine
