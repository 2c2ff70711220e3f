// What the machine does beside layers: messages between ranks, sums over replicas, optimizer steps.
#pragma once

#include <ATen/ATen.h>

#include "entrain/core/spec/cluster.h"

namespace entrain::engine {

struct MachineRates {
  LinkSpec link;                          // between two in-process ranks
  double reduce_bytes_per_second = 0;     // of a lane's gradients, over two in-process replicas
  double optimizer_ns_per_parameter = 0;  // norm, clipping and fused AdamW, float32
};

// The link is measured by messages between two ranks of ThreadComm that go to and fro, in wall
// time: latency is half of a round trip of one number; in-process ranks hand tensors over without a
// copy, so that what bytes cost is the receiver's first read of them, for which a copy stands in.
// Reductions and the optimizer are measured on `device` by a Stopwatch.
//
// Cost  about half a second, 256 MiB.
MachineRates measure_machine(at::Device device);

}  // namespace entrain::engine
