// Other lanes of the machine while one is measured: they share its caches and its memory.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "entrain/engine/profiler/layer_cases.h"

namespace entrain::engine {

// While it lives, one thread for each of `lanes` runs that lane's cases, forward and backward, one
// after another and again, on one torch thread.
//
// Requires  every lane's cases run and outlive this object; torch's CPU device.
// Cost      one core a lane.
class Companions {
 public:
  explicit Companions(const std::vector<LayerCases>& lanes);
  ~Companions();
  Companions(const Companions&) = delete;
  Companions& operator=(const Companions&) = delete;

  // Forward passes so far, of all lanes.
  [[nodiscard]] std::int64_t passes() const { return passes_; }

 private:
  void run(const LayerCases& cases);

  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> passes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace entrain::engine
