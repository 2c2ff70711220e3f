// How fast a run computes beside what its profile says, told by the steps behind it.
//
// Machines wander: a shared or throttled one gives the same layers a fifth more time in one minute
// than in another, and a plan may come from another machine altogether. What a step's time owes to
// that is kept apart here from what it owes to order, waits and messages.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "entrain/core/spec/timeline.h"

namespace entrain::engine {

class RunSpeed {
 public:
  // Steps that tell the speed: the last ones, without the run's first, which warms up.
  static constexpr std::size_t kSteps = 8;

  // What a step should take at the run's speed so far: its simulated time, times measured over
  // predicted compute (all lanes' forwards and backwards) of the last kSteps steps.
  //
  // Returns  nullopt before the run's third step.
  [[nodiscard]] std::optional<double> expected_s(const Timeline& predicted) const;

  // Takes one step that was computed, in rising order; `processor_s` is what its lanes' threads
  // computed, without the turns of others on their cores. Cost: O(lanes).
  //
  // Returns  a line of advice once a run, where the first kSteps took a quarter more or less of the
  //          processors' time than predicted; else nothing.
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
