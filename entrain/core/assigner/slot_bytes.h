// Which slots a sample may join so that, in the order of 1F1B, no lane holds more than its limit.
#pragma once

#include <vector>

#include "entrain/core/baselines/request.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// [sample][lane that has a limit] activations that the sample leaves there.
// Cost  O(units × stages).
std::vector<std::vector<double>> activations_of(const Plan& plan, const StepCosts& costs);

// Under 1F1B a lane holds the activations of so many neighbouring slots as it warms up with, and
// one more. Samples are added whole; what is recomputed or received is left out, so that a
// placement within these limits may still miss the plan's by a little.
class SlotBytes {
 public:
  // Limits are `percent` of the plan's.
  SlotBytes(const Plan& plan, int num_slots, int percent);

  // Share of its limit that the fullest lane would use if such a sample joined the slot; at most 1:
  // it fits. Cost  O(lanes).
  [[nodiscard]] double use(const std::vector<double>& bytes, int slot) const;
  // Cost  O(lanes × warm-up).
  void add(const std::vector<double>& bytes, int slot);

 private:
  struct Lane {
    int window = 1;            // slots in flight
    std::vector<double> held;  // [first slot of a window] bytes
  };

  std::vector<Lane> lanes_;      // those that have a limit
  std::vector<double> limits_;   // [lane] bytes
  std::vector<double> largest_;  // [slot][lane] of the windows that contain it
};

// The fewest bytes in flight: the largest samples first, to the replica with the least of them, in
// even shares, and there to a slot of their own far from other large ones.
//
// Requires  a limit on a lane.
// Cost      O(samples² × lanes / replicas).
Placement one_sample_a_slot(const AssignRequest& request);

}  // namespace entrain
