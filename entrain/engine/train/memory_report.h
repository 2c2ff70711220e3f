// What ranks hold all through training, beside what was predicted for them.
#pragma once

#include <string>

#include "entrain/core/cost/memory.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

inline constexpr const char* kMemoryReportName = "memory.json";

// Every rank calls it once, with what it holds. Rank 0 writes memory.json into the run folder: one
// object a rank with its replica, lane and tensor rank, parameters, gradients and optimizer state
// apart.
//
// Returns  on rank 0 a line for people, else nothing.
// Throws   SystemFailure when the file cannot be written, or another rank fails.
std::string report_memory(const RunSetup& setup, const StateBytes& held, Comm& comm);

}  // namespace entrain::engine
