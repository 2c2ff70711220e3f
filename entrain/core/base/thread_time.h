// Processor time of a thread: its own work, excluding other threads on its core.
#pragma once

#include <chrono>

namespace entrain {

// Of the calling thread since its start.
std::chrono::nanoseconds thread_time();

}  // namespace entrain
