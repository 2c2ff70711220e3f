// The moves of the local search: random small changes of a placement.
#pragma once

#include <algorithm>
#include <vector>

#include "entrain/core/base/random.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement_edit.h"

namespace entrain {

// The slot of another replica at the same place of its order.
inline int scaled_slot(int slot, int from_slots, int to_slots) {
  return std::min(to_slots - 1, (2 * slot + 1) * to_slots / (2 * from_slots));
}

// Replicas that a move changed; none if the drawn move is impossible.
struct Changed {
  int count = 0;
  int replica[2] = {-1, -1};
};

class Mover {
 public:
  // Moves between replicas are between `members`. All arguments must outlive the mover.
  Mover(const AssignRequest& request,
        const BatchLoads& loads,
        const std::vector<int>& members,
        Rng& rng,
        PlacementEdit& edit);

  // Changes the placement by one move that starts at `replica`, one of the members.
  //
  // Ensures  a valid placement stays valid; every replica keeps a sample.
  Changed move(int replica);

 private:
  [[nodiscard]] const Placement& placement() const { return edit_.placement(); }
  int below(int bound);
  [[nodiscard]] double llm_work(int sample) const;
  int random_sample(int replica);
  int other_replica(int replica);
  int similar_sample(int sample, int replica);
  // Moves the sample and its segments to `slot`; segments that were in other slots than their LLM
  // work stay there, if allowed.
  void relocate(int sample, int slot);
  void place_whole(int sample, int slot);
  // Segments into [LLM slot - max_deferral, LLM slot]; all into one slot unless they may be split.
  void repair(int sample);

  // Last slot that a unit of a sample may have: where the LLM takes its features.
  [[nodiscard]] int last_slot(int sample, int module, int unit) const;
  // Moves chunks along with the sample; makes it whole if they would not rise any more.
  template <class Rename>
  void rename_chunks(int sample, Rename rename);

  Changed move_within(int replica);
  Changed swap_within(int replica);
  Changed move_across(int replica);
  Changed swap_across(int replica);
  Changed defer_sample(int replica);
  Changed advance_segments(int replica);
  Changed swap_slots(int replica);
  Changed exchange_slots(int replica);
  Changed merge_slots(int replica);
  Changed split_slot(int replica);
  Changed cut_sample(int replica);

  // Renames every slot of a replica.
  template <class Rename>
  void rename_slots(int replica, Rename rename);

  const AssignRequest& request_;
  const StepCosts& costs_;
  const BatchLoads& loads_;
  const std::vector<int>& members_;
  Rng& rng_;
  PlacementEdit& edit_;
};

}  // namespace entrain
