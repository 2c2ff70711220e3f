// The policy `entrain-paper`: algorithm 3 of the Entrain paper (arXiv 2605.27918) with its step
// over replicas, as restated in our words.
//
// 1. Replicas: samples by falling encoder work, each to the replica with the least LLM work so far
//    among those that have fewer than ⌈samples / replicas⌉: the paper's replicas have equally many.
// 2. K_eff = min(K, ⌊Σ encoder work / largest encoder work⌋) of the replica's samples.
// 3. The coarse samples, whose LLM work is above the median, then the fine ones; each set by
//    falling encoder work to the slot with the least encoder work.
// 4. Slots by LLM work: upper half overloaded, lower half underloaded, paired so that the largest
//    LLM work after deferral is least (pair_deferral.h).
// 5. Order ol0, ul0, ol1, ul1, …: what a slot defers waits exactly one slot.
//
// What the paper leaves open, and what we do: work is forward and backward over all stages; several
// encoders count together (the paper fuses them). The median of an even number is the lower middle
// one. Samples without encoder work, which the paper does not have, are dealt by falling LLM work
// after all others, to the replica, then to the slot with the least LLM work; the median leaves
// them out. A replica without encoder work keeps K; K_eff is never more than its samples. Ties go
// to the fewest samples, then to the first. Subset sums count in 1,024 steps of the slot's LLM
// work. With an odd number of slots the upper half is the larger one, and its lightest slot stays
// unpaired, at the end. Pairs below the bottleneck defer nothing. limits.max_deferral = 0 switches
// deferral off. Split backward and eager forward belong to schedules.
#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/lpt.h"
#include "entrain/core/baselines/module_work.h"
#include "entrain/core/baselines/pair_deferral.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

// Samples with encoder work by falling encoder work, then the others by falling LLM work.
std::vector<int> dealing_order(const ModuleWork& work) {
  std::vector<int> order = falling(work.llm);
  const auto text_only = std::stable_partition(
      order.begin(), order.end(), [&](int sample) { return work.encoder[at(sample)] > 0; });
  // Equal encoder work in the order of the batch.
  std::sort(order.begin(), text_only);
  std::stable_sort(order.begin(), text_only, [&](int a, int b) {
    return work.encoder[at(a)] > work.encoder[at(b)];
  });
  return order;
}

// [replica] samples in dealing order.
std::vector<std::vector<int>> deal(const ModuleWork& work, int replicas) {
  std::vector<std::vector<int>> result(at(replicas));
  const int most = (static_cast<int>(work.llm.size()) + replicas - 1) / replicas;
  LeastLoaded llm(replicas);
  for (const int sample : dealing_order(work)) {
    const int replica = llm.least();
    llm.add(replica, work.llm[at(sample)]);
    if (llm.members(replica) == most) {
      llm.close(replica);
    }
    result[at(replica)].push_back(sample);
  }
  return result;
}

int effective_slots(const ModuleWork& work, const std::vector<int>& samples, int num_slots) {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (const int sample : samples) {
    total += work.encoder[at(sample)];
    largest = std::max(largest, work.encoder[at(sample)]);
  }
  const auto most = std::min<std::int64_t>(num_slots, static_cast<std::int64_t>(samples.size()));
  return static_cast<int>(largest == 0 ? most : std::min(most, total / largest));
}

// [slot] samples; `samples` in dealing order.
std::vector<std::vector<int>> fill_slots(const ModuleWork& work,
                                         const std::vector<int>& samples,
                                         int num_slots) {
  const auto text_only = std::find_if(
      samples.begin(), samples.end(), [&](int sample) { return work.encoder[at(sample)] == 0; });
  std::vector<std::vector<int>> slots(at(num_slots));
  LeastLoaded llm(num_slots);
  const auto put = [&](int slot, int sample) {
    llm.add(slot, work.llm[at(sample)]);
    slots[at(slot)].push_back(sample);
  };
  if (text_only != samples.begin()) {
    std::vector<std::int64_t> works;
    for (auto sample = samples.begin(); sample != text_only; ++sample) {
      works.push_back(work.llm[at(*sample)]);
    }
    const auto middle = works.begin() + static_cast<std::ptrdiff_t>((works.size() - 1) / 2);
    std::nth_element(works.begin(), middle, works.end());
    LeastLoaded encoder(num_slots);
    for (const bool coarse : {true, false}) {
      for (auto sample = samples.begin(); sample != text_only; ++sample) {
        if ((work.llm[at(*sample)] > *middle) == coarse) {
          const int slot = encoder.least();
          encoder.add(slot, work.encoder[at(*sample)]);
          put(slot, *sample);
        }
      }
    }
  }
  for (auto sample = text_only; sample != samples.end(); ++sample) {
    put(llm.least(), *sample);
  }
  return slots;
}

std::vector<std::vector<std::int64_t>> llm_work(const ModuleWork& work,
                                                const std::vector<std::vector<int>>& slots) {
  std::vector<std::vector<std::int64_t>> result;
  for (const std::vector<int>& slot : slots) {
    std::vector<std::int64_t>& of_slot = result.emplace_back();
    for (const int sample : slot) {
      of_slot.push_back(work.llm[at(sample)]);
    }
  }
  return result;
}

void place_pairs(const StepCosts& costs,
                 const std::vector<std::vector<int>>& slots,
                 const std::vector<SlotPair>& pairs,
                 Placement& placement) {
  int slot = 0;
  for (const SlotPair& pair : pairs) {
    for (const int sample : slots[at(pair.overloaded)]) {
      place_sample(costs, sample, slot, placement);
    }
    for (const int entry : pair.deferred) {
      placement.llm_slot[at(slots[at(pair.overloaded)][at(entry)])] = slot + 1;
    }
    ++slot;
    if (pair.underloaded >= 0) {
      for (const int sample : slots[at(pair.underloaded)]) {
        place_sample(costs, sample, slot, placement);
      }
      ++slot;
    }
  }
}

}  // namespace

Placement entrain_paper_policy(const AssignRequest& request) {
  const Plan& plan = *request.plan;
  const ModuleWork work = module_work(*request.costs);
  Placement placement = empty_placement(*request.costs, plan.replicas, 1);
  placement.samples = deal(work, plan.replicas);
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    const std::vector<int>& samples = placement.samples[replica];
    const int num_slots = effective_slots(work, samples, plan.num_slots);
    placement.num_slots[replica] = num_slots;
    const std::vector<std::vector<int>> slots = fill_slots(work, samples, num_slots);
    const bool defer = plan.limits.max_deferral != 0;
    place_pairs(*request.costs, slots, pair_slots(llm_work(work, slots), defer), placement);
  }
  return placement;
}

}  // namespace entrain
