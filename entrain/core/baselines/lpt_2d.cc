#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/graph/placement.h"

namespace entrain {
namespace {

// LoadBins that each take what leaves their larger normalised load least; ties to the fewest
// samples, then to the first.
class LoadBins {
 public:
  LoadBins(int count, const Load& total)
      : loads_(at(count)), samples_(at(count), 0), total_(total) {}

  int add(const Load& load) {
    int best = 0;
    double best_load = larger(0, load);
    for (int bin = 1; bin < static_cast<int>(loads_.size()); ++bin) {
      const double candidate = larger(bin, load);
      if (candidate < best_load ||
          (candidate <= best_load && samples_[at(bin)] < samples_[at(best)])) {
        best = bin;
        best_load = candidate;
      }
    }
    for (std::size_t d = 0; d < load.size(); ++d) {
      loads_[at(best)][d] += load[d];
    }
    ++samples_[at(best)];
    return best;
  }

 private:
  [[nodiscard]] double larger(int bin, const Load& load) const {
    double largest = 0;
    for (std::size_t d = 0; d < load.size(); ++d) {
      if (total_[d] > 0) {
        largest = std::max(largest, (loads_[at(bin)][d] + load[d]) / total_[d]);
      }
    }
    return largest;
  }

  std::vector<Load> loads_;
  std::vector<int> samples_;
  Load total_;
};

}  // namespace

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
