#include <numeric>

#include "entrain/core/assigner/placement.h"
#include "entrain/core/assigner/policies.h"

namespace entrain {

Placement sequential_policy(const AssignRequest& request) {
  std::vector<int> order(static_cast<std::size_t>(request.costs->num_samples));
  std::iota(order.begin(), order.end(), 0);
  return deal_in_order(*request.costs, order, request.plan->replicas, request.plan->num_slots);
}

}  // namespace entrain
