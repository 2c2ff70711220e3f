#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

Placement lpt_2d_policy(const AssignRequest& request) {
  return lpt_2d_bins(request, batch_loads(*request.plan, *request.costs), request.plan->num_slots);
}

Placement lpt_2d_bins(const AssignRequest& request, const BatchLoads& loads, int num_slots) {
  const StepCosts& costs = *request.costs;
  Placement placement = empty_placement(costs, request.plan->replicas, num_slots);
  LoadBins replicas(request.plan->replicas, loads.total);
  for (const int sample : loads.descending) {
    placement.samples[at(replicas.add(loads.sample[at(sample)]))].push_back(sample);
  }
  for (std::size_t replica = 0; replica < placement.samples.size(); ++replica) {
    const std::vector<int>& samples = placement.samples[replica];
    const int slots = std::min(num_slots, static_cast<int>(samples.size()));
    placement.num_slots[replica] = std::max(1, slots);
    LoadBins bins(placement.num_slots[replica], loads.total);
    for (const int sample : samples) {
      place_sample(costs, sample, bins.add(loads.sample[at(sample)]), placement);
    }
  }
  return placement;
}

}  // namespace entrain
