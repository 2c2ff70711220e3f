// Memory of messages and collectives, which no rank's thread accounts for, and copies of tensors to
// another device in it.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace entrain::engine {

// While it lives, allocations and releases of this thread are known to the allocator but not
// reported: this memory changes threads, and which thread releases it last depends on timing.
// Code that measures memory counts a message itself, from the time its receive is posted or the
// message is used.
class Unreported {
 public:
  Unreported() : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Nobody>()) {}
  Unreported(const Unreported&) = delete;
  Unreported& operator=(const Unreported&) = delete;

 private:
  struct Nobody : public c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*pointer*/,
                           std::int64_t /*size*/,
                           std::size_t /*allocated*/,
                           std::size_t /*reserved*/,
                           c10::Device /*device*/) override {}
    // Otherwise the allocator would forget the size and never report the release of memory whose
    // allocation it did not see.
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  };
  c10::DebugInfoGuard guard_;
};

// The tensor itself if it is on `device`, else a copy there, complete when the call returns. As for
// all memory of messages, neither the copy nor the release of the original is reported.
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
