#include "entrain/core/baselines/lpt.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/baselines/module_work.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
LeastLoaded::LeastLoaded(int num_bins) : bins_(at(num_bins)) {}

int LeastLoaded::least() const {
  int best = -1;
  for (int bin = 0; bin < static_cast<int>(bins_.size()); ++bin) {
    const Bin& candidate = bins_[at(bin)];
    if (!candidate.open) {
      continue;
    }
    if (best < 0 || candidate.work < bins_[at(best)].work ||
        (candidate.work == bins_[at(best)].work && candidate.members < bins_[at(best)].members)) {
      best = bin;
    }
  }
  ENTRAIN_INVARIANT(best >= 0, "every bin is closed");
  return best;
}

void LeastLoaded::add(int bin, std::int64_t work) {
  bins_[at(bin)].work += work;
  ++bins_[at(bin)].members;
}

std::vector<int> falling(const std::vector<std::int64_t>& work, std::vector<int> samples) {
  std::stable_sort(
      samples.begin(), samples.end(), [&](int a, int b) { return work[at(a)] > work[at(b)]; });
  return samples;
}

std::vector<int> falling(const std::vector<std::int64_t>& work) {
  std::vector<int> samples(work.size());
  std::iota(samples.begin(), samples.end(), 0);
  return falling(work, std::move(samples));
}

Placement lpt_placement(const AssignRequest& request, const std::vector<std::int64_t>& work) {
  Placement placement =
      empty_placement(*request.costs, request.plan->replicas, request.plan->num_slots);
  LeastLoaded replicas(request.plan->replicas);
  for (const int sample : falling(work)) {
    const int replica = replicas.least();
    replicas.add(replica, work[at(sample)]);
    placement.samples[at(replica)].push_back(sample);
  }
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    const std::vector<int>& samples = placement.samples[replica];
    placement.num_slots[replica] =
        std::min(request.plan->num_slots, static_cast<int>(samples.size()));
    LeastLoaded slots(placement.num_slots[replica]);
    for (const int sample : samples) {
      const int slot = slots.least();
      slots.add(slot, work[at(sample)]);
      place_sample(*request.costs, sample, slot, placement);
    }
  }
  return placement;
}

// All encoders together. LLM work is not looked at. Text-only samples come last and weigh nothing,
// so that those of a replica pile up in the one slot with the least encoder work.
Placement encoder_lpt_policy(const AssignRequest& request) {
  return lpt_placement(request, module_work(*request.costs).encoder);
}

// Encoder work is not looked at.
Placement llm_lpt_policy(const AssignRequest& request) {
  return lpt_placement(request, module_work(*request.costs).llm);
}

}  // namespace entrain
