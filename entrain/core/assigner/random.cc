#include "entrain/core/base/random.h"

#include <numeric>
#include <span>

#include "entrain/core/assigner/placement.h"
#include "entrain/core/assigner/policies.h"
#include "entrain/core/base/digest.h"

namespace entrain {

Placement random_policy(const AssignRequest& request) {
  std::vector<int> order(static_cast<std::size_t>(request.costs->num_samples));
  std::iota(order.begin(), order.end(), 0);
  Rng rng(request.seed, hash_of("assigner/random") + static_cast<std::uint64_t>(request.step));
  rng.shuffle(std::span<int>(order));
  return deal_in_order(*request.costs, order, request.plan->replicas, request.plan->num_slots);
}

}  // namespace entrain
