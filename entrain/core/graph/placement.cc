#include "entrain/core/graph/placement.h"

#include <algorithm>

#include "entrain/core/base/at.h"

namespace entrain {
Placement empty_placement(const StepCosts& costs, int replicas, int num_slots) {
  Placement result;
  result.num_slots.assign(at(replicas), num_slots);
  result.samples.resize(at(replicas));
  result.llm_slot.assign(at(costs.num_samples), 0);
  result.chunks.resize(at(costs.num_samples));
  for (int module = 0; module < costs.llm_module(); ++module) {
    result.encoder_slot.emplace_back(at(costs.num_units(module)), 0);
  }
  return result;
}

void place_sample(const StepCosts& costs, int sample, int slot, Placement& placement) {
  placement.llm_slot[at(sample)] = slot;
  placement.chunks[at(sample)].clear();
  for (int module = 0; module < costs.llm_module(); ++module) {
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      placement.encoder_slot[at(module)][at(unit)] = slot;
    }
  }
}

void copy_replica(const StepCosts& costs, const Placement& from, int replica, Placement& to) {
  to.num_slots[at(replica)] = from.num_slots[at(replica)];
  to.samples[at(replica)] = from.samples[at(replica)];
  for (const int sample : from.samples[at(replica)]) {
    to.llm_slot[at(sample)] = from.llm_slot[at(sample)];
    to.chunks[at(sample)] = from.chunks[at(sample)];
    for (std::size_t module = 0; module < from.encoder_slot.size(); ++module) {
      const std::vector<int>& first = costs.modules[module].first_unit;
      const std::vector<int>& slots = from.encoder_slot[module];
      std::copy(slots.begin() + first[at(sample)],
                slots.begin() + first[at(sample) + 1],
                to.encoder_slot[module].begin() + first[at(sample)]);
    }
  }
}

std::vector<ChunkPlace> equal_chunks(const StepCosts& costs,
                                     int sample,
                                     int first_slot,
                                     int count) {
  const std::int64_t tokens = costs.work[at(sample)].llm_tokens;
  const int llm = costs.llm_module();
  const auto time_until = [&](std::int64_t end) {
    const WorkItem item{.sample = sample, .segment = -1, .token_begin = 0, .token_end = end};
    return unit_cost(costs, llm, 0, item).time.forward.count();
  };
  const std::int64_t whole = time_until(tokens);
  std::vector<ChunkPlace> chunks;
  std::int64_t begin = 0;
  for (int i = 0; i < count; ++i) {
    const std::int64_t left = count - i - 1;  // chunks after this one, at least one token each
    std::int64_t low = begin + 1;
    std::int64_t high = tokens - left;
    while (left > 0 && low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (time_until(middle) < whole / count * (i + 1)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begin = left > 0 ? low : tokens;
    chunks.push_back({first_slot + i, begin});
  }
  return chunks;
}

ReplicaAssignment to_assignment(const StepCosts& costs, const Placement& placement, int replica) {
  ReplicaAssignment result;
  result.num_slots = placement.num_slots[at(replica)];
  result.modules.assign(costs.modules.size(), ModuleSlots(at(result.num_slots)));
  const int llm = costs.llm_module();
  for (const int sample : placement.samples[at(replica)]) {
    if (placement.chunks[at(sample)].empty()) {
      result.modules[at(llm)][at(placement.llm_slot[at(sample)])].push_back({.sample = sample});
    }
    std::int64_t begin_token = 0;
    for (const ChunkPlace& chunk : placement.chunks[at(sample)]) {
      result.modules[at(llm)][at(chunk.slot)].push_back({.sample = sample,
                                                         .segment = -1,
                                                         .token_begin = begin_token,
                                                         .token_end = chunk.token_end});
      begin_token = chunk.token_end;
    }
    for (int module = 0; module < llm; ++module) {
      const std::vector<int>& first = costs.modules[at(module)].first_unit;
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        const int slot = placement.encoder_slot[at(module)][at(unit)];
        result.modules[at(module)][at(slot)].push_back(
            {.sample = sample, .segment = unit - first[at(sample)]});
      }
    }
  }
  return result;
}

StepAssignment to_assignment(const StepCosts& costs, const Placement& placement) {
  StepAssignment result;
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    result.replicas.push_back(to_assignment(costs, placement, static_cast<int>(replica)));
  }
  return result;
}

std::vector<int> even_runs(int count, int parts) {
  std::vector<int> begins;
  for (int part = 0; part <= parts; ++part) {
    begins.push_back(static_cast<int>(std::int64_t{count} * part / parts));
  }
  return begins;
}

void place_in_even_runs(const StepCosts& costs, int replica, int num_slots, Placement& placement) {
  const std::vector<int>& samples = placement.samples[at(replica)];
  const int count = static_cast<int>(samples.size());
  const int slots = std::max(1, std::min(num_slots, count));
  placement.num_slots[at(replica)] = slots;
  const std::vector<int> runs = even_runs(count, slots);
  for (int slot = 0; slot < slots; ++slot) {
    for (int i = runs[at(slot)]; i < runs[at(slot + 1)]; ++i) {
      place_sample(costs, samples[at(i)], slot, placement);
    }
  }
}

Placement deal_in_order(const StepCosts& costs,
                        const std::vector<int>& order,
                        int replicas,
                        int num_slots) {
  Placement result = empty_placement(costs, replicas, num_slots);
  const std::vector<int> runs = even_runs(static_cast<int>(order.size()), replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    result.samples[at(replica)].assign(order.begin() + runs[at(replica)],
                                       order.begin() + runs[at(replica + 1)]);
    place_in_even_runs(costs, replica, num_slots, result);
  }
  return result;
}

}  // namespace entrain
