// The policies that take samples as they come: `sequential`, `random`.
#include <numeric>
#include <span>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/random.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

std::vector<int> drawn_order(const AssignRequest& request) {
  std::vector<int> order(static_cast<std::size_t>(request.costs->num_samples));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Placement dealt(const AssignRequest& request, const std::vector<int>& order) {
  return deal_in_order(*request.costs, order, request.plan->replicas, request.plan->num_slots);
}

}  // namespace

Placement sequential_policy(const AssignRequest& request) {
  return dealt(request, drawn_order(request));
}

Placement random_policy(const AssignRequest& request) {
  std::vector<int> order = drawn_order(request);
  Rng rng(request.seed, hash_of("assigner/random") + static_cast<std::uint64_t>(request.step));
  rng.shuffle(std::span<int>(order));
  return dealt(request, order);
}

}  // namespace entrain
