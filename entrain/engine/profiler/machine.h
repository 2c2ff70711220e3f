// Measures the machine besides layers: messages between ranks, reductions over replicas, optimizer.
#pragma once

#include <ATen/ATen.h>

#include "entrain/core/spec/cluster.h"

namespace entrain::engine {

struct MachineRates {
  LinkSpec link;                          // between two in-process ranks
  double reduce_bytes_per_second = 0;     // of a lane's gradients, over two in-process replicas
  double optimizer_ns_per_parameter = 0;  // norm, clipping and fused AdamW, float32
};

// The link is measured by ping-pong messages between two ranks of ThreadComm, in wall time. Latency
// is half of a round trip of one number. In-process ranks pass tensors without a
// copy, so bytes cost the receiver's first read; the measurement replaces that by a copy.
// Reductions and the optimizer are measured on `device` by a Stopwatch.
//
// Cost  about half a second, 256 MiB.
MachineRates measure_machine(at::Device device);

}  // namespace entrain::engine
