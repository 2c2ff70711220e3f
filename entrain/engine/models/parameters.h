// Names, initial values and freezing of parameters. Used only by the stages.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// Standard deviation of initial values: 0.02 for embeddings; 1/sqrt(fan_in) for matrices, so that
// unit inputs give unit outputs. Matrices that write to the residual stream are divided further by
// sqrt(2 · num_layers), since that many outputs add up. Gains are 1, biases 0. Of an adapter A is
// uniform within ±1/sqrt(fan_in) and B 0, as in the reference implementation of LoRA.
//
// Requires  fan_in >= 1; num_layers: transformer layers of the module, >= 1.
double initial_deviation(ParameterRole role, std::int64_t fan_in, int num_layers);

// A parameter with its initial value, which requires gradients if it is trainable. Sizes are those
// of the whole parameter. With a tensor group, the value is this rank's shard of the whole, so it
// does not depend on the sharding. The fan-in of a matrix or convolution is the product of all its
// axes but the first. `num_layers`: as for initial_deviation().
NamedParameter initial_parameter(const ParameterSpec& parameter,
                                 const StageOptions& options,
                                 int num_layers);

// Throws  InvalidInput unless 0 <= begin < end <= num_layers.
void check_layers(const std::string& module, LayerRange layers, int num_layers);

}  // namespace entrain::engine
