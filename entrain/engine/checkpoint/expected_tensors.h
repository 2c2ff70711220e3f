// Which tensors a checkpoint of a model must hold.
#pragma once

#include <vector>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/tensor_info.h"

namespace entrain::engine {

// Every parameter, frozen ones included, and both moments of the trained ones. Draws and allocates
// nothing.
std::vector<TensorInfo> expected_tensors(const ModelSpec& model);

}  // namespace entrain::engine
