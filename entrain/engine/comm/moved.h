// Copies of tensors between devices, or between a device and the host.
#pragma once

#include <ATen/ATen.h>

#include "entrain/engine/comm/unreported.h"

namespace entrain::engine {

// The tensor itself if it is on `device`, else a copy there, complete when the call returns. As for
// all memory of messages, neither the copy nor the release of the original is reported
// (unreported.h).
inline at::Tensor moved_to(at::Device device, at::Tensor tensor) {
  if (tensor.device() == device) {
    return tensor;
  }
  const Unreported unreported;
  at::Tensor moved = tensor.to(device);
  tensor = at::Tensor();
  return moved;
}

}  // namespace entrain::engine
