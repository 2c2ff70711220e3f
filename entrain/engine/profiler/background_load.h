// Background load while a lane is measured: other lanes that share the machine's caches and memory.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "entrain/engine/profiler/layer_cases.h"

namespace entrain::engine {

// While it lives, one thread per lane of `lanes` repeats that lane's cases, forward and backward,
// in a loop, on one torch thread.
//
// Requires  every lane's cases run and outlive this object; torch's CPU device.
// Cost      one core a lane.
class BackgroundLoad {
 public:
  explicit BackgroundLoad(const std::vector<LayerCases>& lanes);
  ~BackgroundLoad();
  BackgroundLoad(const BackgroundLoad&) = delete;
  BackgroundLoad& operator=(const BackgroundLoad&) = delete;

  // Forward passes so far, of all lanes.
  [[nodiscard]] std::int64_t passes() const { return passes_; }

 private:
  void run(const LayerCases& cases);

  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> passes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace entrain::engine
