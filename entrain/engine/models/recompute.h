// Activation recomputation: a layer keeps only its input and runs forward again in backward.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

using LayerForward = std::function<at::Tensor(const at::Tensor& input)>;

// layer(input), recorded as one autograd node that holds `input` and `layer`. Its backward runs the
// layer again with recording, and releases its activations before it returns: gradients are
// bit for bit those of the layer itself if its kernels are deterministic. `leaves` are tensors
// with gradients that the layer reads besides its parameters. Deferred weight gradients
// (weight_gradients.h) work here too; they keep what they read of the second run. If
// nothing is recorded (no grad mode, or neither input nor parameters require gradients) it is
// plain layer(input).
//
// Requires  `layer` is a pure function of its argument, `parameters` and captured values, all valid
//           until the backward.
at::Tensor run_recomputed(const at::Tensor& input,
                          std::span<const NamedParameter> parameters,
                          LayerForward layer,
                          std::vector<at::Tensor> leaves = {});

}  // namespace entrain::engine
