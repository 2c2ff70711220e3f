// Simulated step time of assignments, one replica at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// What one replica does with its share of a step, before it meets the other replicas.
struct ReplicaTimes {
  std::vector<std::int64_t> finish_ns;  // [lane] end of its last compute operation
  std::int64_t total_ns = 0;            // latest finish with the lane's reduction behind it
  std::int64_t peak_bytes = 0;          // largest activation bytes of any lane
};

// Builds the replica's program under the plan's schedule and replays it. Replicas meet only at the
// end of a step (reduction, clipping), so that a change in one replica leaves the times of the
// others as they are.
class StepEvaluator {
 public:
  // `plan` and `costs` must outlive the evaluator.
  StepEvaluator(const Plan& plan, const StepCosts& costs);

  // Cost  O(operations of one replica); counts as one evaluation.
  ReplicaTimes evaluate(const ReplicaAssignment& replica);

  // The step time that simulate() gives for the program of all replicas.
  [[nodiscard]] std::int64_t step_ns(const std::vector<ReplicaTimes>& replicas) const;
  [[nodiscard]] bool fits(const ReplicaTimes& replica) const {
    return plan_.limits.bytes_per_lane == 0 || replica.peak_bytes <= plan_.limits.bytes_per_lane;
  }
  [[nodiscard]] int evaluations() const { return evaluations_; }

 private:
  Plan plan_;  // of one replica
  const StepCosts& costs_;
  std::vector<std::int64_t> reduce_ns_;  // [lane]
  std::int64_t optimizer_ns_ = 0;        // of the slowest lane
  StepAssignment assignment_;            // of one replica
  int evaluations_ = 0;
};

}  // namespace entrain
