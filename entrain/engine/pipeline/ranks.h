// Runs one function on every rank of a communicator, a thread each.
#pragma once

#include <functional>

#include "entrain/engine/comm/thread_comm.h"

namespace entrain::engine {

// Starts `group.size()` threads, runs `body(rank)` on each with one torch thread, and joins them
// all.
//
// The first body that throws aborts the communicator, so that every other rank stops as well.
// Throws  that first error with its own type, never the CommAborted of a rank that was stopped by
//         it (unless nothing else failed).
void run_ranks(ThreadCommGroup& group, const std::function<void(int rank)>& body);

}  // namespace entrain::engine
