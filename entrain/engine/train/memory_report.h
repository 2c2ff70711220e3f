// Static memory of the ranks during training, compared with the prediction.
#pragma once

#include <string>

#include "entrain/core/cost/memory.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

inline constexpr const char* kMemoryReportName = "memory.json";

// Every rank calls it once, with its bytes. Rank 0 writes memory.json into the run folder: one
// object per rank with its replica, lane and tensor rank, and its parameters, gradients and
// optimizer state as separate values.
//
// Returns  on rank 0 a line for the console, else nothing.
// Throws   SystemFailure if the file cannot be written, or another rank fails.
std::string report_memory(const RunSetup& setup, const StateBytes& held, Comm& comm);

}  // namespace entrain::engine
