// A layer's costs as the model trains it: parts frozen by name, and adapters.
//
// Read first: trained_profile().
#pragma once

#include <cstdint>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// Of a layer with such `counts`, from the costs of one without adapters, all of whose parameters
// are trained, which is what profiles hold: one profile serves every freezing and every rank.
//
// Weight gradients take the trained matrices' share of all of them, and an adapter's matrices add
// to every operation in proportion to their numbers: per token a matrix costs as much as it has
// numbers. What a launch costs is not changed. An adapter keeps x Aᵀ for the backward. A layer of
// which only a part is trained still counts all its activations, an upper bound.
//
// Returns   `whole` itself where all of the layer is trained, or nothing, without adapters.
// Requires  `whole` is the profile's entry of that layer's kind; dtype_bytes of a number.
LayerProfile trained_profile(const ModelSpec& model,
                             int module,
                             const LayerCounts& counts,
                             const LayerProfile& whole,
                             std::int64_t dtype_bytes);

}  // namespace entrain
