// Validation samples taken from the training data where there are no others, and those that are
// training samples against the intent.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Moves `fraction` of the samples, drawn by `seed` and at least one, out of `train`. Both keep the
// index's order. The same arguments always move the same samples.
//
// Requires  0 < fraction < 1.
// Throws    InvalidInput when that would leave no sample to train on.
DataSet split_validation(double fraction, std::uint64_t seed, DataSet& train);

// How many samples of `validation` (by id) are trained on, for people; empty for none.
std::string overlap_warning(const Index& train, const Index& validation);

}  // namespace entrain::engine
