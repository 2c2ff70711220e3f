#include "entrain/core/assigner/balance_objective.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "entrain/core/assigner/balance_replicas.h"
#include "entrain/core/assigner/balance_slots.h"
#include "entrain/core/base/at.h"
#include "entrain/core/baselines/module_work.h"

namespace entrain {
namespace {

// The load of a slot without an oversized unit: the remaining work over the remaining slots, once
// every unit above it has a slot of its own. 0 without work.
double level_of(std::vector<std::int64_t> units, int num_slots) {
  std::sort(units.begin(), units.end(), std::greater<>());
  double rest = 0;
  for (const std::int64_t unit : units) {
    rest += static_cast<double>(unit);
  }
  double slots = num_slots;
  for (const std::int64_t unit : units) {
    if (slots < 2 || static_cast<double>(unit) * slots <= rest) {
      break;
    }
    rest -= static_cast<double>(unit);
    slots -= 1;
  }
  return rest / slots;
}

BalanceTimes balance_times(const StepCosts& costs, int num_slots) {
  BalanceTimes result;
  for (int module = 0; module <= costs.llm_module(); ++module) {
    result.unit.push_back(forward_times(costs, module));
    result.level.push_back(level_of(result.unit.back(), num_slots));
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    std::vector<int>& sample_of = result.sample_of.emplace_back(at(first.back()));
    for (int sample = 0; sample < costs.num_samples; ++sample) {
      std::fill(
          sample_of.begin() + first[at(sample)], sample_of.begin() + first[at(sample + 1)], sample);
    }
  }
  return result;
}

}  // namespace

Placement balance_objective(const AssignRequest& request) {
  const StepCosts& costs = *request.costs;
  const Plan& plan = *request.plan;
  const BalanceTimes times = balance_times(costs, plan.replicas * plan.num_slots);
  std::vector<std::vector<double>> shares;  // [sample][module] counted work in slots
  for (int sample = 0; sample < costs.num_samples; ++sample) {
    std::vector<double>& share = shares.emplace_back();
    for (int module = 0; module <= costs.llm_module(); ++module) {
      share.push_back(times.counted(costs, module, sample));
    }
  }
  Placement placement = empty_placement(costs, plan.replicas, plan.num_slots);
  placement.samples = balance_replicas(shares, plan.replicas);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    balance_slots(costs, times, replica, plan.limits.max_deferral, placement);
  }
  return placement;
}

}  // namespace entrain
