// Bytes of tensors that one thread allocates and frees on one kind of device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace entrain::engine {

// Counts from its construction to its end on the thread that made it; backward passes run there
// too, or on a device's thread that takes this one's books along. What was allocated before does
// not count, not even when it is freed. Memory that changes threads is added and taken off by hand.
//
// Several may not be in force on one thread at a time, nor torch's own profiler.
class LiveBytes {
 public:
  explicit LiveBytes(at::DeviceType type = at::kCPU)
      : count_(std::make_shared<Count>(type)), guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  [[nodiscard]] std::int64_t bytes() const { return count_->bytes; }
  // Largest bytes() since the last call of reset_peak(), or ever.
  [[nodiscard]] std::int64_t peak() const { return count_->peak; }
  void reset_peak() { count_->peak = count_->bytes; }
  // Memory that came from, or went to, another thread.
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
