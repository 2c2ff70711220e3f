// What a replica's step time is the sum of.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/graph/step_graph.h"

namespace entrain {

// Operations and messages of a replica, each of which waits for the one before. Whatever they cost,
// the replica takes at least the chain's length while its lanes run the same orders.
struct CriticalChain {
  struct Term {
    int cost = 0;                             // ReplicaGraph::cost_index()
    std::int64_t GraphUnit::*time = nullptr;  // that part of it
  };
  std::vector<Term> terms;
  std::int64_t end_ns = 0;  // after the last: the reduction on its lane

  // Nanoseconds with the costs of a graph whose shape() is that of the chain's.
  // Cost  O(terms), about a nanosecond each.
  [[nodiscard]] std::int64_t length(const ReplicaGraph& graph) const {
    std::int64_t sum = end_ns;
    for (const Term& term : terms) {
      sum += graph.costs[static_cast<std::size_t>(term.cost)].*term.time;
    }
    return sum;
  }
};

}  // namespace entrain
