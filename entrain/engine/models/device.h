// Devices to compute on, by the names that configurations and commands have for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/ATen.h>

namespace entrain::engine {

// The device of `kind` ("cpu", "cuda") of the rank that is number `local_rank` on its host: of
// several devices ranks take one each in turn, so that more ranks than devices share them.
//
// Requires  local_rank >= 0.
// Throws    InvalidInput for a name that torch has no devices for; SystemFailure where this torch
//           was built without them or finds none.
at::Device device_of(const std::string& kind, int local_rank = 0);

// Bytes that a device has left for anybody; empty for the processor and where the device's
// allocator does not say.
std::optional<std::int64_t> free_bytes(at::Device device);

// Waits until the device has done what this thread has asked of it; the processor has by then.
void wait_for_device(at::Device device);

}  // namespace entrain::engine
