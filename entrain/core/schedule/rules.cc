#include "entrain/core/schedule/rules.h"

#include <algorithm>
#include <limits>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/list_schedule.h"
#include "entrain/core/schedule/order.h"

namespace entrain {
namespace {

std::vector<std::int64_t> lane_limits(const Plan& plan) {
  std::vector<std::int64_t> limits;
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    limits.push_back(plan.limits.bytes_of(lane));
  }
  return limits;
}

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

std::vector<std::int64_t> lane_end_times(const Plan& plan, const StepCosts& costs) {
  std::vector<std::int64_t> result;
  for (const std::vector<StageRef>& lane : plan.lanes) {
    std::int64_t reduce = 0;
    for (const StageRef& ref : lane) {
      reduce += costs.modules[static_cast<std::size_t>(ref.module)]
                    .stages[static_cast<std::size_t>(ref.stage)]
                    .reduce.count();
    }
    result.push_back(plan.replicas > 1 ? reduce : 0);
  }
  return result;
}

std::vector<ListRule> eager_rules() {
  std::vector<ListRule> rules;
  for (const int window : {0, 400, 200, 150, 100}) {
    rules.push_back({.window_percent = window});
  }
  return rules;
}

std::vector<ListRule> entrain_fused_rules() {
  std::vector<ListRule> rules;
  for (const int window : {100, 150, 200, 0}) {
    for (const bool encoder_first : {false, true}) {
      rules.push_back({.encoder_forward_first = encoder_first, .window_percent = window});
    }
  }
  rules.push_back(kStrictRule);
  return rules;
}

std::vector<ListRule> entrain_rules() {
  const std::vector<ListRule> fused = entrain_fused_rules();
  std::vector<ListRule> rules;
  for (ListRule rule : fused) {
    if (!rule.in_order) {
      rule.weight = WeightHalf::kFilling;
      rules.push_back(rule);
    }
  }
  rules.insert(rules.end(), fused.begin(), fused.end());
  return rules;
}

LaneOrders list_order(const OrderInputs& inputs, const ListSchedule& schedule) {
  const bool any = schedule.choice == RuleChoice::kOnly;
  const std::vector<std::int64_t> limits = lane_limits(inputs.plan);
  const std::vector<std::int64_t> lane_end = lane_end_times(inputs.plan, inputs.costs);
  ListScheduler scheduler(inputs.stages, limits);
  scheduler.set_lane_end(lane_end);
  std::int64_t best_ns = std::numeric_limits<std::int64_t>::max();
  ListRule best = any ? schedule.rules.front() : kOneFOneBRule;
  for (const ListRule& rule : schedule.rules) {
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
