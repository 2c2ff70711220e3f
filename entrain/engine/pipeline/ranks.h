// Runs one function on every rank of a communicator, a thread each.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "entrain/engine/comm/thread_comm.h"

namespace entrain::engine {

// Ends a rank in silence. No std::exception, so that it passes all who report failures: whoever
// runs the rank lets it end (a thread returns, a process kills itself). Drills alone throw it.
struct RankVanished {};

// What to do about ranks that do not end although another has failed: one that hangs in a read or a
// kernel cannot be stopped from outside.
struct StuckRanks {
  std::chrono::milliseconds patience{0};  // after the first failure
  // Gets the first error's message and the ranks; ends the process, so it does not return. Empty:
  // wait for as long as it takes.
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
