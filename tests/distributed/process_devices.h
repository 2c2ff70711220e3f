// Ranks that are processes, and compute on devices that are not the processor.
#pragma once

#include <string>
#include <vector>

#include "entrain/engine/comm/c10d_comm.h"

namespace entrain {

// All ranks of a group call these together.
// Throws  std::runtime_error naming what differs and where.

// Messages and collectives of tensors on devices, to devices and to the host.
void check_device_messages(engine::C10dComm& comm);

// The same between devices, over backends that hang as NCCL would (fifo_backend.h): `groups` are
// names of two groups with nothing but Gloo. Then whole runs.
void check_device_links(engine::C10dComm& comm, const std::vector<std::string>& groups);
// What is sent does not arrive: every rank learns of it. A communicator of its own over `group`.
void check_lost_transfer(const std::string& group, const std::vector<std::string>& groups);

// Training runs of four ranks, with a device each and all on one, bitwise those of threads: lanes
// of two ranks, and two replicas.
void check_device_runs(engine::C10dComm& comm);

}  // namespace entrain
