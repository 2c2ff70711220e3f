// The policy `packed`: sequences of bounded length, as a loader that packs by tokens makes them.
//
// Samples go to replicas in drawn order, in even runs, as with `sequential`. Inside a replica they
// are packed first-fit by LLM tokens: in drawn order each into the first slot whose tokens stay
// within a capacity. The capacity is one number for all replicas, as a sequence length is: the
// least one found at which no replica needs more than the plan's number of slots. It is found by
// bisection between the larger of (longest sample, tokens / slots) and the tokens of the fullest
// replica; since first-fit may need more slots at a larger capacity, a smaller one that fits may
// exist. A replica has as many slots as it filled.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/graph/placement.h"

namespace entrain {
namespace {

// [i] slot of samples[i]; slots are opened as needed.
std::vector<int> first_fit(const std::vector<std::int64_t>& tokens,
                           const std::vector<int>& samples,
                           std::int64_t capacity) {
  std::vector<std::int64_t> filled;
  std::vector<int> result;
  for (const int sample : samples) {
    std::size_t slot = 0;
    while (slot < filled.size() && filled[slot] + tokens[at(sample)] > capacity) {
      ++slot;
    }
    if (slot == filled.size()) {
      filled.push_back(0);
    }
    filled[slot] += tokens[at(sample)];
    result.push_back(static_cast<int>(slot));
  }
  return result;
}

int slots_used(const std::vector<int>& slots) {
  return *std::max_element(slots.begin(), slots.end()) + 1;
}

std::int64_t find_capacity(const std::vector<std::int64_t>& tokens,
                           const std::vector<std::vector<int>>& replicas,
                           int num_slots) {
  std::int64_t low = 1;
  std::int64_t high = 1;  // always fits
  for (const std::vector<int>& samples : replicas) {
    std::int64_t total = 0;
    for (const int sample : samples) {
      low = std::max(low, tokens[at(sample)]);
      total += tokens[at(sample)];
    }
    low = std::max(low, (total + num_slots - 1) / num_slots);
    high = std::max(high, total);
  }
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const bool fits = std::all_of(replicas.begin(), replicas.end(), [&](const auto& samples) {
      return slots_used(first_fit(tokens, samples, middle)) <= num_slots;
    });
    if (fits) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace

Placement packed_policy(const AssignRequest& request) {
  const StepCosts& costs = *request.costs;
  const std::vector<std::int64_t>& tokens = costs.modules[at(costs.llm_module())].tokens;
  Placement placement = sequential_policy(request);
  const std::int64_t capacity = find_capacity(tokens, placement.samples, request.plan->num_slots);
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    const std::vector<int>& samples = placement.samples[replica];
    const std::vector<int> slots = first_fit(tokens, samples, capacity);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      place_sample(costs, samples[i], slots[i], placement);
    }
    placement.num_slots[replica] = slots_used(slots);
  }
  return placement;
}

}  // namespace entrain
