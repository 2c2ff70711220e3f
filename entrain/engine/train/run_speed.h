// A run's compute speed relative to its profile, estimated from its last steps.
//
// Machine speed varies: a shared or throttled machine takes a fifth more time for the same layers
// in one minute than in another, and a plan may come from another machine. This separates the
// effect of speed on a step's time from that of order, waits and messages.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "entrain/core/spec/timeline.h"

namespace entrain::engine {

class RunSpeed {
 public:
  // The speed is estimated from the last kSteps steps, without the run's first, which warms up.
  static constexpr std::size_t kSteps = 8;

  // The expected time of a step at the run's speed so far: its simulated time, times measured over
  // predicted compute (all lanes' forwards and backwards) of the last kSteps steps.
  //
  // Returns  nullopt before the run's third step.
  [[nodiscard]] std::optional<double> expected_s(const Timeline& predicted) const;

  // Observes one computed step, in rising order; `processor_s` is the processor time of its lanes'
  // threads, without other threads' turns on their cores. Cost: O(lanes).
  //
  // Returns  one line of advice per run, if the first kSteps took a quarter more or less
  //          processor time than predicted; else nothing.
  std::string observe(const Timeline& predicted, const Timeline& measured, double processor_s);

 private:
  struct Compute {
    std::chrono::nanoseconds predicted{0};
    std::chrono::nanoseconds measured{0};
    double processor_s = 0;
  };

  [[nodiscard]] Compute sum() const;

  std::deque<Compute> recent_;  // newest last
  bool warm_ = false;
  bool advised_ = false;
};

}  // namespace entrain::engine
