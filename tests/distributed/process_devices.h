// Ranks that are processes, and compute on devices that are not the processor.
#pragma once

#include "entrain/engine/comm/c10d_comm.h"

namespace entrain {

// All ranks of a group call these together.
// Throws  std::runtime_error naming what differs and where.

// Messages and collectives of tensors on devices, to devices and to the host.
void check_device_messages(engine::C10dComm& comm);
// Training runs of four ranks, with a device each and all on one, bitwise those of threads: lanes
// of two ranks, and two replicas.
void check_device_runs(engine::C10dComm& comm);

}  // namespace entrain
