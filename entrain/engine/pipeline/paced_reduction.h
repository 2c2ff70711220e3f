// End times of reductions overlapped with compute, for paced runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/buckets.h"
#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

// The reductions of one lane in one step.
class PacedReduction {
 public:
  explicit PacedReduction(std::size_t num_stages) : last_(num_stages) {}

  // Reports when the last operation with weight gradients of a stage, by its number on the lane,
  // ran, relative to the step's start.
  void ran(std::size_t stage, std::chrono::nanoseconds start, std::chrono::nanoseconds finish) {
    last_[stage] = {start.count(), finish.count()};
  }

  // End times of the lane's buckets relative to the step's start, as in the simulator (buckets.h),
  // for the measured operations. All of `ranks`, the same lane of every replica, call this
  // together.
  std::vector<simulation::Bucket> buckets(const Program& program,
                                          const StepCosts& costs,
                                          int lane,
                                          Comm& comm,
                                          const std::vector<int>& ranks) const;

 private:
  std::vector<simulation::Bucket> last_;  // [stage of the lane]
};

}  // namespace entrain::engine
