// Waits instead of computing, for paced runs.
#pragma once

#include <chrono>

namespace entrain::engine {

// Returns at `target` or as soon after as the machine allows: sleeps until shortly before, then
// yields its core in a loop.
void wait_until(std::chrono::steady_clock::time_point target);

}  // namespace entrain::engine
