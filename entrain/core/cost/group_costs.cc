// What groups, messages and lanes cost, read from the tables that step_costs() made.
#include <functional>

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

// `total` and a part of the cost of every item of a group.
template <class Value, class PartOf>
Value add_up(Value total,
             const StepCosts& costs,
             const UnitKey& unit,
             const Group& group,
             const PartOf& part_of) {
  const StageCosts& stage = stage_of(costs, unit);
  for (const WorkItem& item : group.items) {
    if (item.is_chunk()) {
      total += std::invoke(part_of, unit_cost(costs, unit.module, unit.stage, item));
    } else {
      total += std::invoke(part_of, stage.units[at(costs.unit_of(unit.module, item))]);
    }
  }
  return total;
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
  const nanoseconds launch = time_of(kind, stage_of(costs, unit).launch);
  return add_up(
      launch, costs, unit, group, [&](const UnitCost& cost) { return time_of(kind, cost.time); });
}

std::int64_t activation_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  return add_up(std::int64_t{0}, costs, unit, group, &UnitCost::activation_bytes);
}

RecomputeBytes recompute_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  return add_up(RecomputeBytes{}, costs, unit, group, &UnitCost::recompute);
}

std::int64_t output_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group) {
  return add_up(std::int64_t{0}, costs, unit, group, &UnitCost::output_bytes);
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
