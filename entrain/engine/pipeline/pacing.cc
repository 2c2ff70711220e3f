#include "entrain/engine/pipeline/pacing.h"

#include <thread>

namespace entrain::engine {

void wait_until(std::chrono::steady_clock::time_point target) {
  using Steady = std::chrono::steady_clock;
  // Typical oversleep of a thread on an idle machine.
  constexpr std::chrono::microseconds kSpin{100};
  if (target - Steady::now() > kSpin) {
    std::this_thread::sleep_until(target - kSpin);
  }
  while (Steady::now() < target) {
    std::this_thread::yield();
  }
}

}  // namespace entrain::engine
