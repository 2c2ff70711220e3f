// Runs one function on every rank of a communicator, a thread each.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "entrain/engine/comm/thread_comm.h"

namespace entrain::engine {

// Ends a rank silently. Not a std::exception, so that it passes all error handlers: the code that
// runs the rank lets it end (a thread returns, a process kills itself). Only drills throw it.
struct RankVanished {};

// Handling of ranks that do not end after another has failed: a rank that hangs in a read or a
// kernel cannot be stopped from outside.
struct StuckRanks {
  std::chrono::milliseconds patience{0};  // time after the first failure
  // Called with the first error's message and the ranks; ends the process, so it does not return.
  // Empty: wait for ever.
  std::function<void(const std::string& failure, const std::vector<int>& stuck)> give_up;
};

// Starts `group.size()` threads, runs `body(rank)` on each with one torch thread, and joins them
// all.
//
// The first body that throws aborts the communicator, so that every other rank stops as well.
// Throws  that first error with its own type, never the CommAborted of a rank that was stopped by
//         it (unless nothing else failed).
void run_ranks(ThreadCommGroup& group,
               const std::function<void(int rank)>& body,
               const StuckRanks& stuck = {});

}  // namespace entrain::engine
