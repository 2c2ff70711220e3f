// Validation samples taken from the training data where there are no others.
#pragma once

#include <cstdint>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Moves `fraction` of the samples, drawn by `seed` and at least one, out of `train`. Both keep the
// index's order. The same arguments always move the same samples.
//
// Requires  0 < fraction < 1.
// Throws    InvalidInput when that would leave no sample to train on.
DataSet split_validation(double fraction, std::uint64_t seed, DataSet& train);

}  // namespace entrain::engine
