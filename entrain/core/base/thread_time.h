// Processor time of a thread: what its own work takes, whoever else has the core in between.
#pragma once

#include <chrono>

namespace entrain {

// Of the calling thread since its start.
std::chrono::nanoseconds thread_time();

}  // namespace entrain
