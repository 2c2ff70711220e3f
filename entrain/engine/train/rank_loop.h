// One rank's run: steps, checkpoints, validations, weights at the end.
//
// Read first: train_rank().
#pragma once

#include <functional>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_state.h"

namespace entrain::engine {

// From the run's first step to its last, or to the one after which it was told to stop; its lane's
// weights are then in run.lane_parameters. `local_rank` counts the ranks on this host.
// `began` is called before the first step; may be empty.
//
// Throws  the error that stopped this rank; its dump is written by then.
void train_rank(Run& run, Comm& comm, int local_rank, const std::function<void()>& began);

}  // namespace entrain::engine
