// The policy `dflop`: DFLOP's microbatches (arXiv 2603.25120), after our notes of it.
//
// All samples go into K·D bins with at least one sample each, so that the largest load of any bin
// is least. DFLOP bounds vision time and LLM time of a bin by one C; here a bin's loads are its
// forward and backward on each module's heaviest lane (loads.h), which is the same where no lane
// hosts two modules, and covers several encoders. K is the plan's num_slots, or samples / replicas
// where that is less. DFLOP hands the integer program to CP-SAT with a limit of wall time;
// min_max_bins() is a search of our own with a proven lower bound and a limit of exchanges.
//
// What DFLOP leaves open: bins go to replicas by falling total load, to the replica with the least
// that has fewer than K; a replica's slots are in the order in which their first samples were
// drawn. Nothing is deferred.
#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/lpt.h"
#include "entrain/core/baselines/min_max_bins.h"
#include "entrain/core/baselines/policies.h"

namespace entrain {
namespace {

// [bin] its samples, in drawn order.
std::vector<std::vector<int>> make_bins(const BatchLoads& loads,
                                        int num_bins,
                                        std::int64_t exchanges) {
  const MinMaxBins placed = min_max_bins(loads.sample, num_bins, exchanges);
  std::vector<std::vector<int>> result(at(num_bins));
  for (std::size_t sample = 0; sample < placed.bin_of.size(); ++sample) {
    result[at(placed.bin_of[sample])].push_back(static_cast<int>(sample));
  }
  return result;
}

// [replica] its bins, by first sample.
std::vector<std::vector<int>> deal_bins(const BatchLoads& loads,
                                        const std::vector<std::vector<int>>& bins,
                                        int replicas) {
  std::vector<std::int64_t> total(bins.size(), 0);
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    for (const int sample : bins[bin]) {
      for (const double load : loads.sample[at(sample)]) {
        total[bin] += static_cast<std::int64_t>(load);
      }
    }
  }
  std::vector<std::vector<int>> result(at(replicas));
  LeastLoaded least(replicas);
  for (const int bin : falling(total)) {
    const int replica = least.least();
    least.add(replica, total[at(bin)]);
    result[at(replica)].push_back(bin);
    if (result[at(replica)].size() == bins.size() / at(replicas)) {
      least.close(replica);
    }
  }
  for (std::vector<int>& of_replica : result) {
    std::sort(of_replica.begin(), of_replica.end(), [&](int a, int b) {
      return bins[at(a)].front() < bins[at(b)].front();
    });
  }
  return result;
}

}  // namespace

Placement dflop_policy(const AssignRequest& request) {
  const BatchLoads loads = batch_loads(*request.plan, *request.costs);
  return dflop_bins(request, loads, request.plan->num_slots, kDflopExchanges);
}

Placement dflop_bins(const AssignRequest& request,
                     const BatchLoads& loads,
                     int most_slots,
                     std::int64_t exchanges) {
  const StepCosts& costs = *request.costs;
  const int replicas = request.plan->replicas;
  const int num_slots = std::min(most_slots, costs.num_samples / replicas);
  const std::vector<std::vector<int>> bins = make_bins(loads, num_slots * replicas, exchanges);
  Placement placement = empty_placement(costs, replicas, num_slots);
  const std::vector<std::vector<int>> dealt = deal_bins(loads, bins, replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    for (int slot = 0; slot < num_slots; ++slot) {
      for (const int sample : bins[at(dealt[at(replica)][at(slot)])]) {
        placement.samples[at(replica)].push_back(sample);
        place_sample(costs, sample, slot, placement);
      }
    }
  }
  return placement;
}

}  // namespace entrain
