// One rank of a lane whose other ranks are simulated: measures what a rank allocates.
#pragma once

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The first rank of a tensor group of `num_ranks`. Every collective returns at once, with tensors
// of the right shape: the other ranks' parts are copies of this rank's, and sums contain only this
// rank.
//
// Requires  num_ranks >= 1; no messages.
TensorGroupPtr single_rank(int num_ranks);

}  // namespace entrain::engine
