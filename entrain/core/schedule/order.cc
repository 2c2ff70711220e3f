#include "entrain/core/schedule/order.h"

#include <algorithm>
#include <limits>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
namespace {

std::int64_t step_time(const ListResult& result, const std::vector<std::int64_t>& lane_end) {
  std::int64_t latest = 0;
  for (std::size_t lane = 0; lane < lane_end.size(); ++lane) {
    latest = std::max(latest, result.finish_ns[lane] + lane_end[lane]);
  }
  return latest;
}

// Backwards wait for no bytes, yet gradients of keys and values take some.
bool fits(const ListResult& result, const std::vector<std::int64_t>& limits) {
  bool within = result.done;
  for (std::size_t lane = 0; within && lane < limits.size(); ++lane) {
    within = limits[lane] == 0 || result.peak_bytes[lane] <= limits[lane];
  }
  return within;
}

}  // namespace

LaneOrders list_order(const OrderInputs& inputs, const ListSchedule& schedule) {
  const bool any = schedule.choice == RuleChoice::kOnly;
  const std::vector<std::int64_t> limits = lane_limits(inputs.plan);
  const std::vector<std::int64_t> lane_end = lane_end_times(inputs.plan, inputs.costs);
  ListScheduler scheduler(inputs.stages, limits);
  scheduler.set_lane_end(lane_end);
  std::int64_t best_ns = std::numeric_limits<std::int64_t>::max();
  ListRule best = any ? schedule.rules.front() : kOneFOneBRule;
  for (const ListRule& rule : distinct_rules(inputs.stages, schedule.rules)) {
    if (any || (schedule.choice == RuleChoice::kFirstThatFits &&
                best_ns < std::numeric_limits<std::int64_t>::max())) {
      break;
    }
    const ListResult& result = scheduler.run(inputs.graph, rule, nullptr, best_ns);
    if (fits(result, limits) && step_time(result, lane_end) < best_ns) {
      best_ns = step_time(result, lane_end);
      best = rule;
    }
  }
  LaneOrders orders;
  const ListResult& result = scheduler.run(inputs.graph, best, &orders);
  ENTRAIN_INVARIANT(result.done, "operations wait for each other");
  return orders;
}

}  // namespace entrain
