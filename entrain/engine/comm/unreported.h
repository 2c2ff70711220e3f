// Memory of messages and collectives, which no rank's thread has in its books.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace entrain::engine {

// While it lives, what this thread allocates and frees is known to the allocator but reported to
// nobody: such memory changes threads, and whose thread is the last to hold it is a matter of luck.
// Whoever measures memory counts a message by itself, from where its receive is posted or where it
// is used.
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
    // Or the allocator would forget the size, and never report the end of what it did not see
    // begin.
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  };
  c10::DebugInfoGuard guard_;
};

}  // namespace entrain::engine
