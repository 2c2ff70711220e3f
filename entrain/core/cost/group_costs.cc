// What groups, messages and lanes cost, read from the tables that step_costs() made.
#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

const StageCosts& stage_of(const StepCosts& costs, const UnitKey& unit) {
  return costs.modules[at(unit.module)].stages[at(unit.stage)];
}

// Calls visit(cost) for every item of a group.
template <class Visit>
void for_each_cost(const StepCosts& costs,
                   const UnitKey& unit,
                   const Group& group,
                   const Visit& visit) {
  const StageCosts& stage = stage_of(costs, unit);
  for (const WorkItem& item : group.items) {
    if (item.is_chunk()) {
      visit(unit_cost(costs, unit.module, unit.stage, item));
    } else {
      visit(stage.units[at(costs.unit_of(unit.module, item))]);
    }
  }
}

nanoseconds time_of(OperationKind kind, const OperationTimes& times) {
  switch (kind) {
    case OperationKind::kForward:
      return times.forward;
    case OperationKind::kBackward:
      return times.backward();
    case OperationKind::kBackwardInput:
      return times.backward_input;
    case OperationKind::kBackwardWeight:
      return times.weight_half();
    default:
      ENTRAIN_INVARIANT(false, fmt::format("{} has no time per unit", name_of(kind)));
  }
}

}  // namespace

nanoseconds operation_time(const StepCosts& costs,
                           OperationKind kind,
                           const UnitKey& unit,
                           const Group& group) {
  nanoseconds total = time_of(kind, stage_of(costs, unit).launch);
  for_each_cost(
      costs, unit, group, [&](const UnitCost& cost) { total += time_of(kind, cost.time); });
  return total;
}

std::int64_t activation_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  std::int64_t total = 0;
  for_each_cost(costs, unit, group, [&](const UnitCost& cost) { total += cost.activation_bytes; });
  return total;
}

RecomputeBytes recompute_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  RecomputeBytes total;
  for_each_cost(costs, unit, group, [&](const UnitCost& cost) { total += cost.recompute; });
  return total;
}

std::int64_t output_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  std::int64_t total = 0;
  for_each_cost(costs, unit, group, [&](const UnitCost& cost) { total += cost.output_bytes; });
  return total;
}

nanoseconds transfer_time(const LinkSpec& link, std::int64_t bytes) {
  if (link.bytes_per_second == 0) {
    return link.latency;
  }
  const double transfer = static_cast<double>(bytes) * 1e9 / link.bytes_per_second;
  if (!(transfer <= static_cast<double>(kMostNanoseconds - link.latency.count()))) {
    throw InvalidInput(fmt::format("a message of {} bytes takes more than 2^62 ns at {} bytes/s",
                                   bytes,
                                   link.bytes_per_second));
  }
  const auto whole = static_cast<std::int64_t>(transfer);
  return link.latency + nanoseconds{static_cast<double>(whole) < transfer ? whole + 1 : whole};
}

}  // namespace entrain
