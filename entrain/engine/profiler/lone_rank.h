// One rank of a lane whose other ranks are made up: for measuring what a rank allocates.
#pragma once

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The first rank of a tensor group of `num_ranks`. Every collective returns at once, with tensors
// of the right shape: what the others would bring is this rank's own again, and sums are of it
// alone.
//
// Requires  num_ranks >= 1; no messages.
TensorGroupPtr lone_rank(int num_ranks);

}  // namespace entrain::engine
