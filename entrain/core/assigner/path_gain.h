// What samples cost along the critical paths of replicas, so that a search can do without most
// moves.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/assigner/placement_edit.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/placement_graph.h"
#include "entrain/core/schedule/order_replay.h"

namespace entrain {

class PathGain {
 public:
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();

  // `graph` and `costs` must outlive it.
  PathGain(const PlacementGraph& graph, const StepCosts& costs, int replicas);

  // The replica's path in these orders, with the times of OrderReplay::length().
  // Cost  O(path + units of the replica).
  void set_path(const Placement& placement,
                int replica,
                const ReplicaGraph& graph,
                const OrderReplay& orders,
                const std::vector<std::int64_t>& times);
  void forget(int replica) { known_[static_cast<std::size_t>(replica)] = 0; }

  // Nanoseconds by which an edit makes the path of a replica longer, apart from messages, as long
  // as its groups stay; kUnknown where no path is known, or the number of slots changed.
  //
  // `of`: the replicas that the edit changed; -1: none.
  // Cost  O(changes).
  std::array<std::int64_t, 2> growth(const PlacementEdit& edit, const std::array<int, 2>& of);

 private:
  struct Weight {  // how often the path has a group's operations
    int forward = 0;
    int input = 0;
    int weight = 0;
    int split = 0;
  };
  [[nodiscard]] std::int64_t cost(const Placement& placement, int replica, int sample) const;
  [[nodiscard]] std::int64_t unit_cost(int replica, int module, int slot, int unit) const;

  const PlacementGraph& graph_;
  const StepCosts& costs_;
  std::vector<char> known_;                                // [replica]
  std::vector<std::vector<std::vector<Weight>>> weights_;  // [replica][module][slot × kinds + kind]
  std::vector<std::int64_t> cost_of_;                      // [sample] on its replica's path
  std::vector<int> replica_of_;                            // [sample]
  std::vector<std::vector<int>> sample_of_;                // [module][unit]
  std::vector<int> seen_;                                  // samples of an edit
};

}  // namespace entrain
