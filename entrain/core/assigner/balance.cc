#include "entrain/core/assigner/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

// Forward time over all stages.
std::int64_t forward_time(const StepCosts& costs, int module, const WorkItem& item) {
  std::int64_t result = 0;
  for (std::size_t stage = 0; stage < costs.modules[at(module)].stages.size(); ++stage) {
    result += unit_cost(costs, module, static_cast<int>(stage), item).time.forward.count();
  }
  return result;
}

}  // namespace

double floor_cv(std::vector<std::int64_t> units, std::int64_t num_slots) {
  std::sort(units.begin(), units.end(), std::greater<>());
  std::int64_t total = 0;
  for (const std::int64_t unit : units) {
    total += unit;
  }
  if (total <= 0 || num_slots < 1) {
    return 0;
  }
  const double mean = static_cast<double>(total) / static_cast<double>(num_slots);
  double least = 0;           // of the sum of squared deviations
  double of_largest = 0;      // squared deviations of the h largest units
  std::int64_t rest = total;  // of the others
  for (std::size_t h = 0; h < units.size() && static_cast<std::int64_t>(h) + 1 < num_slots; ++h) {
    const double deviation = static_cast<double>(units[h]) - mean;
    of_largest += deviation * deviation;
    rest -= units[h];
    const double others = static_cast<double>(num_slots - static_cast<std::int64_t>(h) - 1);
    const double even = static_cast<double>(rest) / others;
    if (even > static_cast<double>(units[h])) {
      break;
    }
    least = std::max(least, of_largest + others * (even - mean) * (even - mean));
  }
  return std::sqrt(least / static_cast<double>(num_slots)) / mean;
}

ModuleBalance module_balance(const StepAssignment& assignment, const StepCosts& costs, int module) {
  std::vector<std::int64_t> units;  // of all items
  std::vector<double> seconds;      // of every slot
  for (const ReplicaAssignment& replica : assignment.replicas) {
    for (const Slot& slot : replica.modules[at(module)]) {
      std::int64_t load = 0;
      for (const WorkItem& item : slot) {
        units.push_back(forward_time(costs, module, item));
        load += units.back();
      }
      seconds.push_back(static_cast<double>(load) * 1e-9);
    }
  }
  ModuleBalance result;
  double largest = 0;
  for (const double load : seconds) {
    result.mean_s += load / static_cast<double>(seconds.size());
    largest = std::max(largest, load);
  }
  if (result.mean_s <= 0) {
    return {};
  }
  double squares = 0;
  for (const double load : seconds) {
    squares += (load - result.mean_s) * (load - result.mean_s);
  }
  result.std_s = std::sqrt(squares / static_cast<double>(seconds.size()));
  result.cv = result.std_s / result.mean_s;
  result.max_over_mean = largest / result.mean_s;
  result.floor_cv = floor_cv(std::move(units), static_cast<std::int64_t>(seconds.size()));
  return result;
}

}  // namespace entrain
