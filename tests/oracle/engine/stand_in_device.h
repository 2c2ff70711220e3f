// Devices that are not the processor, on machines without any: what a test can find out about
// tensors that lie elsewhere, without a GPU.
//
// Read first: stand_in_device(). Their memory is the machine's own, but its addresses are such that
// reading one from the host ends the process, as it would with a GPU's; every operation is torch's
// own kernel for the processor, and refuses tensors of the host among its arguments. Backward runs
// on a thread of the device, which all ranks of the process share, as torch has it for any device.
// What they leave out: work is done when the call that asks for it returns, so a missing wait is
// not found.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

namespace entrain::oracle {

// As torch names their kind, for at::Device and execution.device.
inline constexpr const char* kStandInName = "standin";

inline constexpr int kStandIns = 4;

// Registers all of them with torch at the first call, which has to come before the process's first
// backward.
at::Device stand_in_device(int index = 0);

// From now on there are so many, 1 to kStandIns.
void set_stand_in_count(int count);

// Bytes that live on all of them.
std::int64_t stand_in_bytes();

}  // namespace entrain::oracle
