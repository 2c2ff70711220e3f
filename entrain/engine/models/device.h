// Compute devices, by their names in configurations and commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/ATen.h>

namespace entrain::engine {

// The device of `kind` ("cpu", "cuda") for the rank numbered `local_rank` on its host: ranks take
// the host's devices in turn, so if there are more ranks than devices they share them.
//
// Requires  local_rank >= 0.
// Throws    InvalidInput for a name torch does not know; SystemFailure if this torch was built
//           without such devices or finds none.
at::Device device_of(const std::string& kind, int local_rank = 0);

// Free bytes of a device; empty for the CPU and if the device's allocator does not report them.
std::optional<std::int64_t> free_bytes(at::Device device);

// Waits until the device has finished this thread's work; returns at once for the CPU.
void wait_for_device(at::Device device);

}  // namespace entrain::engine
