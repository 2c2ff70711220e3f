// Bytes of tensors that one thread allocates and frees on one kind of device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace entrain::engine {

// Counts from its construction to its end on the thread that made it. It includes backward passes,
// on that thread or on a device's thread that inherits its counter. Memory allocated before is not
// counted, even when it is released. Memory that changes threads is added and subtracted by hand.
//
// At most one may be active on a thread, and torch's own profiler must not be.
class LiveBytes {
 public:
  explicit LiveBytes(at::DeviceType type = at::kCPU)
      : count_(std::make_shared<Count>(type)), guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  [[nodiscard]] std::int64_t bytes() const { return count_->bytes; }
  // Largest bytes() since the last reset_peak(), or since construction.
  [[nodiscard]] std::int64_t peak() const { return count_->peak; }
  void reset_peak() { count_->peak = count_->bytes; }
  // Memory received from another thread, or passed to one.
  void add(std::int64_t bytes) { count_->change(bytes); }

 private:
  struct Count : public c10::MemoryReportingInfoBase {
    explicit Count(at::DeviceType of_type) : type(of_type) {}
    void reportMemoryUsage(void* /*pointer*/,
                           std::int64_t size,
                           std::size_t /*allocated*/,
                           std::size_t /*reserved*/,
                           c10::Device device) override {
      if (device.type() == type) {
        change(size);
      }
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
    void change(std::int64_t size) {
      bytes += size;
      peak = std::max(peak, bytes);
    }
    at::DeviceType type;
    std::int64_t bytes = 0;
    std::int64_t peak = 0;
  };
  std::shared_ptr<Count> count_;
  c10::DebugInfoGuard guard_;
};

}  // namespace entrain::engine
