// A layer that keeps its input alone: its forward runs again in backward.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

using LayerForward = std::function<at::Tensor(const at::Tensor& input)>;

// layer(input), of which autograd records one node that holds `input` and `layer`. Its backward
// runs the layer again with recording, and frees what that kept before it returns: gradients are
// bit for bit those of the layer itself where its kernels are deterministic. `leaves` are tensors
// with gradients that the layer reads apart from its parameters. Weight gradients that
// wait (weight_gradients.h) do so here too, and keep what they read of the second run. Where
// nothing is to be recorded (no grad mode; neither input nor parameters take gradients) it is
// layer(input).
//
// Requires  `layer` is a pure function of its argument, `parameters` and what it captured by value,
//           valid until the backward.
at::Tensor run_recomputed(const at::Tensor& input,
                          std::span<const NamedParameter> parameters,
                          LayerForward layer,
                          std::vector<at::Tensor> leaves = {});

}  // namespace entrain::engine
