// The moves of the local search: random small changes of a placement.
#pragma once

#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/loads.h"
#include "entrain/core/assigner/placement.h"
#include "entrain/core/base/random.h"

namespace entrain {

class Mover {
 public:
  // All arguments must outlive the mover.
  Mover(const AssignRequest& request, const BatchLoads& loads, Rng& rng);

  // Changes `placement` by one move that starts at `replica`.
  //
  // Ensures  a valid placement stays valid; every replica keeps a sample.
  // Returns  the replicas that changed; empty when the drawn move is not possible here.
  std::vector<int> move(int replica, Placement& placement);

 private:
  int below(int bound);
  int random_sample(int replica, const Placement& placement);
  int similar_sample(int sample, int replica, const Placement& placement);
  // The sample and its segments go to `slot`; segments that were in other slots than their LLM work
  // stay there, as far as they may.
  void relocate(int sample, int slot, Placement& placement) const;
  // Segments into [LLM slot - max_deferral, LLM slot]; all into one slot unless they may be split.
  void repair(int sample, Placement& placement) const;

  std::vector<int> move_within(int replica, Placement& placement);
  std::vector<int> swap_within(int replica, Placement& placement);
  std::vector<int> move_across(int replica, Placement& placement);
  std::vector<int> swap_across(int replica, Placement& placement);
  std::vector<int> defer_sample(int replica, Placement& placement);
  std::vector<int> advance_segments(int replica, Placement& placement);
  std::vector<int> swap_slots(int replica, Placement& placement);
  std::vector<int> merge_slots(int replica, Placement& placement);
  std::vector<int> split_slot(int replica, Placement& placement);

  // Renames every slot of a replica.
  template <class Rename>
  void rename_slots(int replica, Rename rename, Placement& placement) const;

  const AssignRequest& request_;
  const StepCosts& costs_;
  const BatchLoads& loads_;
  Rng& rng_;
};

}  // namespace entrain
