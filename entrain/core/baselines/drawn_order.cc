// The policies that take samples as they come: `sequential`, `random`, one sample a slot.
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

Placement dealt(const AssignRequest& request, const std::vector<int>& order, int num_slots) {
  return deal_in_order(*request.costs, order, request.plan->replicas, num_slots);
}

}  // namespace

Placement sequential_policy(const AssignRequest& request) {
  return dealt(request, drawn_order(request), request.plan->num_slots);
}

Placement one_sample_a_slot(const AssignRequest& request) {
  return dealt(request, drawn_order(request), request.costs->num_samples);
}

Placement random_policy(const AssignRequest& request) {
  std::vector<int> order = drawn_order(request);
  Rng rng(request.seed, hash_of("assigner/random") + static_cast<std::uint64_t>(request.step));
  rng.shuffle(std::span<int>(order));
  return dealt(request, order, request.plan->num_slots);
}

}  // namespace entrain
