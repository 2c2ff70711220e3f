// What the machine does beside layers: copies, sums over replicas, optimizer steps, handovers
// between threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace entrain::engine {

struct MachineRates {
  double copy_bytes_per_second = 0;       // of a message's bytes, larger than any cache
  double reduce_bytes_per_second = 0;     // of a lane's gradients, over two in-process replicas
  double optimizer_ns_per_parameter = 0;  // fused AdamW, float32
  std::chrono::nanoseconds handover{0};   // from one rank's thread to another that waits for it
};

// In-process ranks hand tensors over without a copy; what a message costs is waking the receiver
// and its core's first read of the bytes, for which a copy stands in.
//
// Cost  about half a second, 256 MiB.
MachineRates measure_machine();

// Middle value; the mean of both middle ones for an even count.
// Requires  values not empty.
double median(std::vector<double> values);

}  // namespace entrain::engine
