// By how much a move makes the critical paths of replicas longer, so that a search can leave out
// most moves without building their graphs.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/placement_edit.h"
#include "entrain/core/graph/placement_graph.h"
#include "entrain/core/schedule/order_replay.h"

namespace entrain {

class PathGrowth {
 public:
  // Both must outlive it.
  PathGrowth(const PlacementGraph& graph, const StepCosts& costs, int replicas);

  // The replica's path; `graph`: of the placement, whose chain it is. Chunks that others follow do
  // not count: of() knows no edit that changes chunks.
  // Cost      O(path + groups + samples).
  void set(const Placement& placement,
           int replica,
           const ReplicaGraph& graph,
           const CriticalChain& path);
  // Nothing is known of the replica's path.
  void forget(int replica) { known_[static_cast<std::size_t>(replica)] = 0; }

  // Nanoseconds by which the edit's changes make the replica's path longer, as long as its groups
  // stay, apart from messages. The least int64 where the path is not known, or the number of slots
  // or chunks changed.
  //
  // Requires  the replica's path was set of the placement before the edit.
  // Cost      O(units of the changed samples).
  std::int64_t of(const PlacementEdit& edit, int replica);

 private:
  struct Weight {  // how often the path has an operation of the slot
    int forward = 0;
    int input = 0;
    int weight = 0;
    int split = 0;
  };
  std::int64_t cost_before(const PlacementEdit& edit, int replica, int sample);
  [[nodiscard]] std::int64_t cost(const Placement& placement, int replica, int sample) const;
  [[nodiscard]] std::int64_t unit_cost(int replica, int module, int slot, int unit) const;

  const PlacementGraph& graph_;
  const StepCosts& costs_;
  std::vector<char> known_;                                // [replica]
  std::vector<std::vector<std::vector<Weight>>> weights_;  // [replica][module][slot × kinds + kind]
  std::vector<std::int64_t> cost_of_;  // [sample] on its replica's path; summed once needed
};

}  // namespace entrain
