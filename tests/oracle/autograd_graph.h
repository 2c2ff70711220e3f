// What autograd computes for a model with frozen parts: the model written out operation by
// operation, with gradients asked for one by one.
#pragma once

#include <vector>

#include "entrain/core/spec/model.h"

namespace entrain::oracle {

// Operations of one layer, and those of them that take gradients.
struct LayerCounts {
  int operations = 0;
  int input_gradients = 0;   // of operations whose input gets a gradient
  int weight_gradients = 0;  // of operations whose weights get one
};
using ModuleCounts = std::vector<std::vector<LayerCounts>>;  // [module][layer]

// A result of an operation takes a gradient iff one of the operation's inputs takes one or its
// weights are trainable; backward reaches an operation iff its result takes a gradient.
//
// For a batch that brings something to every encoder.
ModuleCounts autograd_counts(const ModelSpec& model);

}  // namespace entrain::oracle
