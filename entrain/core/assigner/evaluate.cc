#include "entrain/core/assigner/evaluate.h"

#include <algorithm>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

constexpr std::int64_t kNearPart = 20;  // a twentieth slower is near
constexpr std::size_t kMostOrders = 4;  // of a replica
constexpr std::int64_t kAnyTime = std::numeric_limits<std::int64_t>::max();

}  // namespace

bool better(const ReplicaTimes& a, const ReplicaTimes& b) {
  if (!a.fits() || !b.fits()) {
    return a.fits() || (!b.fits() && a.over < b.over);
  }
  return a.total_ns < b.total_ns;
}

StepEvaluator::StepEvaluator(const Plan& plan, const StepCosts& costs, PlacementGraph graph)
    : costs_(costs),
      limits_(lane_limits(plan)),
      lane_end_(lane_end_times(plan, costs)),
      graph_(std::move(graph)),
      scheduler_(graph_.stages(), limits_),
      schedule_(list_schedule(plan.schedule, plan)),
      rule_of_(at(plan.replicas), 0),
      has_rule_(at(plan.replicas), 0),
      orders_(at(plan.replicas)),
      path_(graph_, costs, plan.replicas) {
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    std::int64_t optimizer = 0;
    for (const StageRef& ref : plan.lanes[at(lane)]) {
      optimizer += costs.modules[at(ref.module)].stages[at(ref.stage)].optimizer.count();
    }
    optimizer_ns_ = std::max(optimizer_ns_, optimizer);
  }
  schedule_.rules = distinct_rules(graph_.stages(), schedule_.rules);
  scheduler_.set_lane_end(lane_end_);
  near_.assign(schedule_.rules.size(), 1);
}

void StepEvaluator::add_memory(const std::vector<std::int64_t>& peak_bytes,
                               ReplicaTimes& times) const {
  for (std::size_t lane = 0; lane < limits_.size(); ++lane) {
    times.peak_bytes = std::max(times.peak_bytes, peak_bytes[lane]);
    const std::int64_t limit = limits_[lane];
    if (limit > 0 && peak_bytes[lane] > limit) {
      times.over = std::max(
          times.over, static_cast<double>(peak_bytes[lane] - limit) / static_cast<double>(limit));
    }
  }
}

ReplicaTimes StepEvaluator::run_rule(const ReplicaGraph& graph, int rule, std::int64_t stop_after) {
  const ListResult* result = &scheduler_.run(graph, schedule_.rules[at(rule)], nullptr, stop_after);
  if (result->stuck) {
    result = &scheduler_.run(graph, kOneFOneBRule, nullptr, stop_after);
  }
  ++simulations_;
  ReplicaTimes times = times_of(*result);
  times.rule = rule;
  return times;
}

ReplicaTimes StepEvaluator::times_of(const ListResult& result) const {
  ReplicaTimes times;
  times.done = result.done;
  for (std::size_t lane = 0; times.done && lane < lane_end_.size(); ++lane) {
    times.total_ns = std::max(times.total_ns, result.finish_ns[lane] + lane_end_[lane]);
  }
  if (times.done) {
    add_memory(result.peak_bytes, times);
  }
  return times;
}

void StepEvaluator::place(const Placement& placement, int replica) {
  orders_[at(replica)].shape = graph_.place(placement, replica);
  place_chunks(placement, replica);
}

void StepEvaluator::place(const PlacementEdit& edit, int replica) {
  orders_[at(replica)].shape = graph_.place(edit, replica);
  place_chunks(edit.placement(), replica);
}

// Chunks go the long way round, through groups: few replicas have them.
void StepEvaluator::place_chunks(const Placement& placement, int replica) {
  Orders& of = orders_[at(replica)];
  const std::vector<int>& samples = placement.samples[at(replica)];
  of.in_chunks = std::any_of(samples.begin(), samples.end(), [&](int sample) {
    return !placement.chunks[at(sample)].empty();
  });
  if (of.in_chunks) {
    of.groups = build_groups(to_assignment(costs_, placement, replica), costs_);
    of.chunked = graph_without_costs(graph_.stages(), graph_.kind_of_stage(), of.groups);
    of.shape = of.chunked.shape();
  }
}

const ReplicaGraph& StepEvaluator::graph_of(int replica) {
  Orders& of = orders_[at(replica)];
  if (!of.in_chunks) {
    return graph_.graph(replica);
  }
  if (of.chunked.costs.empty()) {
    fill_costs(graph_.stages(), costs_, of.groups, of.chunked);
  }
  return of.chunked;
}

ReplicaTimes StepEvaluator::evaluate(const Placement& placement,
                                     int replica,
                                     std::int64_t stop_after) {
  place(placement, replica);
  return time_placed(replica, stop_after);
}

ReplicaTimes StepEvaluator::time_placed(int replica, std::int64_t stop_after) {
  ++evaluations_;
  const ReplicaGraph& graph = graph_of(replica);
  OrderReplay* orders = known_orders(replica);
  ReplicaTimes times =
      orders == nullptr ? simulate(graph, replica, stop_after) : replay(graph, *orders, stop_after);
  times.done = times.done && times.total_ns <= stop_after;
  return times;
}

ReplicaTimes StepEvaluator::evaluate_placed(int replica, std::int64_t stop_after) {
  const int before = simulations_;
  const ReplicaTimes times = time_placed(replica, stop_after);
  Shaped<CriticalChain>& last = orders_[at(replica)].last;
  last.shape = 0;
  if (times.done) {
    const ReplicaGraph& graph = graph_of(replica);
    OrderReplay* known = known_orders(replica);
    if (known != nullptr) {
      scheduler_.link(graph, *known);
    }
    const OrderReplay& orders = known != nullptr ? *known : scheduler_.replay();
    if (simulations_ > before) {  // a replay has left its times
      static_cast<void>(orders.length(graph, node_times_));
    }
    last = {orders_[at(replica)].shape, orders.chain(graph, node_times_)};
  }
  return times;
}

ReplicaTimes StepEvaluator::simulate(const ReplicaGraph& graph,
                                     int replica,
                                     std::int64_t stop_after) {
  if (schedule_.choice == RuleChoice::kFirstThatFits) {
    return run_first_that_fits(graph, stop_after);
  }
  const bool fixed = fixed_orders();
  // To the end, to know all of the orders.
  const ReplicaTimes times = run_rule(graph, rule_of_[at(replica)], fixed ? kAnyTime : stop_after);
  if (fixed) {
    keep_orders(replica);
  }
  return times;
}

ReplicaTimes StepEvaluator::replay(const ReplicaGraph& graph,
                                   OrderReplay& orders,
                                   std::int64_t stop_after) {
  scheduler_.link(graph, orders);
  ReplicaTimes times;
  times.done = true;
  times.total_ns = orders.length(graph, node_times_);
  replayed_ += static_cast<std::int64_t>(orders.nodes.size());
  if (has_limits() && times.total_ns <= stop_after) {
    add_memory(scheduler_.replayed_bytes(graph, orders), times);
  }
  return times;
}

ReplicaTimes StepEvaluator::run_first_that_fits(const ReplicaGraph& graph,
                                                std::int64_t stop_after) {
  ++simulations_;
  for (const ListRule& rule : schedule_.rules) {
    const ListResult& result = scheduler_.run(graph, rule, nullptr, stop_after);
    const ReplicaTimes times = times_of(result);
    if (!result.stuck && (!times.done || times.fits())) {
      return times;
    }
  }
  return times_of(scheduler_.run(graph, kOneFOneBRule, nullptr, stop_after));
}

bool StepEvaluator::fixed_orders() const {
  return schedule_.choice == RuleChoice::kOnly && scheduler_.fixes_orders(schedule_.rules.front());
}

// In place of the oldest.
void StepEvaluator::keep_orders(int replica) {
  Orders& of = orders_[at(replica)];
  if (of.known.size() < kMostOrders) {
    of.known.emplace_back();
  }
  Shaped<OrderReplay>& known = of.known[of.oldest];
  of.oldest = (of.oldest + 1) % kMostOrders;
  known.shape = of.shape;
  known.of.steps = scheduler_.steps();
  known.of.nodes.clear();
}

// Of groups like the last placement's.
OrderReplay* StepEvaluator::known_orders(int replica) {
  Orders& of = orders_[at(replica)];
  for (Shaped<OrderReplay>& known : of.known) {
    if (known.shape == of.shape) {
      return &known.of;
    }
  }
  return nullptr;
}

void StepEvaluator::keep_chain(const Placement& placement, int replica) {
  Orders& of = orders_[at(replica)];
  of.kept = std::exchange(of.last.shape, 0);
  graph_.keep(replica);
  path_.forget(replica);
  if (of.kept != 0) {
    path_.set(placement, replica, graph_of(replica), of.last.of);
  }
}

ReplicaTimes StepEvaluator::find_chain(const Placement& placement, int replica) {
  place(placement, replica);
  const ReplicaTimes times = evaluate_placed(replica, kAnyTime);
  keep_chain(placement, replica);
  return times;
}

bool StepEvaluator::place_known(const PlacementEdit& edit, int replica) {
  place(edit, replica);
  const Orders& of = orders_[at(replica)];
  return fixed_orders() ? known_orders(replica) != nullptr : of.shape == of.kept;
}

bool StepEvaluator::fits(const Placement& placement, int replica) {
  place(placement, replica);
  if (!has_rules()) {
    return simulate(graph_of(replica), replica, kAnyTime).fits();
  }
  for (std::size_t rule = schedule_.rules.size(); rule-- > 0;) {  // the lean ones first
    if (run_rule(graph_of(replica), static_cast<int>(rule), kAnyTime).fits()) {
      return true;
    }
  }
  return false;
}

ReplicaTimes StepEvaluator::choose_rule(const Placement& placement,
                                        int replica,
                                        RuleSet among,
                                        std::int64_t stop_after) {
  if (!has_rules()) {
    return evaluate(placement, replica, stop_after);
  }
  place(placement, replica);
  const ReplicaGraph& graph = graph_of(replica);
  const bool all = among == RuleSet::kAll;
  // The last one is probably still fast, so that others stop early.
  std::vector<int> order = {rule_of_[at(replica)]};
  for (int rule = 0; rule < static_cast<int>(schedule_.rules.size()); ++rule) {
    if (rule != order[0] && (among != RuleSet::kNear || near_[at(rule)] != 0)) {
      order.push_back(rule);
    }
  }
  // Of rules that are near, too.
  const auto latest = [all](std::int64_t time) {
    return time == kAnyTime || !all ? time : time + time / kNearPart;
  };
  ReplicaTimes best;
  std::vector<ReplicaTimes> tried;
  for (const int rule : order) {
    ++evaluations_;
    const bool known = best.done && best.fits();
    const ReplicaTimes times = run_rule(graph, rule, latest(known ? best.total_ns : stop_after));
    tried.push_back(times);
    const bool first = rule < best.rule;  // of equals
    if (times.done && (!best.done || better(times, best) || (first && !better(best, times)))) {
      best = times;
    }
  }
  if (!best.done) {
    return best;
  }
  if (all) {
    near_.assign(near_.size(), 0);
    for (const ReplicaTimes& times : tried) {
      near_[at(times.rule)] =
          times.done && (!best.fits() || times.total_ns <= latest(best.total_ns)) ? 1 : 0;
    }
  }
  rule_of_[at(replica)] = best.rule;
  has_rule_[at(replica)] = 1;
  for (std::size_t other = 0; other < rule_of_.size(); ++other) {
    if (has_rule_[other] == 0) {
      rule_of_[other] = best.rule;
    }
  }
  return best;
}

void StepEvaluator::use_rules_of(const StepEvaluator& other) {
  near_ = other.near_;
  rule_of_ = other.rule_of_;
  has_rule_ = other.has_rule_;
}

std::int64_t StepEvaluator::step_ns(const std::vector<ReplicaTimes>& replicas) const {
  std::int64_t latest = 0;
  for (const ReplicaTimes& replica : replicas) {
    latest = std::max(latest, replica.total_ns);
  }
  return step_ns(latest);
}

}  // namespace entrain
