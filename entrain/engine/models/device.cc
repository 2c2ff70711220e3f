#include "entrain/engine/models/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::optional<at::DeviceType> type_of(const std::string& kind) {
  try {
    const at::Device device(kind);
    return device.has_index() ? std::nullopt : std::optional(device.type());
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

at::Device device_of(const std::string& kind, int local_rank) {
  const std::optional<at::DeviceType> type = type_of(kind);
  if (!type.has_value()) {
    throw InvalidInput(concat("device: '", kind, "' given; allowed: cpu, cuda"));
  }
  if (type == at::kCPU) {
    return at::kCPU;
  }
  if (!c10::impl::hasDeviceGuardImpl(*type)) {
    throw SystemFailure(
        concat("device ", kind, ": this torch (", ENTRAIN_TORCH_VERSION, ") was built without it"));
  }
  const int count = c10::impl::VirtualGuardImpl(*type).deviceCount();
  if (count == 0) {
    throw SystemFailure(
        concat("device ", kind, ": torch ", ENTRAIN_TORCH_VERSION, " finds none on this machine"));
  }
  return {*type, static_cast<at::DeviceIndex>(local_rank % count)};
}

std::optional<std::int64_t> free_bytes(at::Device device) {
  if (device.is_cpu()) {
    return std::nullopt;
  }
  try {
    return static_cast<std::int64_t>(
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

void wait_for_device(at::Device device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
}

}  // namespace entrain::engine
