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

ReplicaBalance replica_balance(const ModuleSlots& slots, const StepCosts& costs, int module) {
  std::vector<std::int64_t> units;  // of all items
  std::vector<double> seconds;      // of every slot
  for (const Slot& slot : slots) {
    std::int64_t load = 0;
    for (const WorkItem& item : slot) {
      units.push_back(forward_time(costs, module, item));
      load += units.back();
    }
    seconds.push_back(static_cast<double>(load) * 1e-9);
  }
  ReplicaBalance result;
  result.num_slots = static_cast<int>(slots.size());
  double largest = 0;
  for (const double load : seconds) {
    result.mean_s += load / static_cast<double>(seconds.size());
    largest = std::max(largest, load);
  }
  if (result.mean_s <= 0) {
    return result;
  }
  double squares = 0;
  for (const double load : seconds) {
    squares += (load - result.mean_s) * (load - result.mean_s);
  }
  result.std_s = std::sqrt(squares / static_cast<double>(seconds.size()));
  result.cv = result.std_s / result.mean_s;
  result.max_over_mean = largest / result.mean_s;
  result.floor_cv = floor_cv(std::move(units), result.num_slots);
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
  ModuleBalance result;
  double working = 0;  // replicas with work of the module
  for (const ReplicaAssignment& replica : assignment.replicas) {
    const ReplicaBalance& balance =
        result.replicas.emplace_back(replica_balance(replica.modules[at(module)], costs, module));
    working += balance.mean_s > 0 ? 1 : 0;
  }
  for (const auto figure : {&SlotBalance::mean_s,
                            &SlotBalance::std_s,
                            &SlotBalance::cv,
                            &SlotBalance::max_over_mean,
                            &SlotBalance::floor_cv}) {
    for (const ReplicaBalance& balance : result.replicas) {
      result.*figure += balance.*figure / std::max(1.0, working);
    }
  }
  return result;
}

}  // namespace entrain
