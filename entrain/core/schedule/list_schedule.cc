#include "entrain/core/schedule/list_schedule.h"

#include <algorithm>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

bool one_stage_a_lane(const StageGraph& stages) {
  return std::all_of(stages.lanes.begin(), stages.lanes.end(), [](const std::vector<int>& of_lane) {
    return of_lane.size() == 1;
  });
}

// -1: any slot.
int window_of(const StageGraph::Stage& stage, const ListRule& rule) {
  return rule.window_percent == 0
             ? -1
             : (stage.warm_up * rule.window_percent + 99) / 100 + rule.window_extra;
}

// Whether both rules choose the same orders on these stages, as far as is plain to see.
bool alike(const StageGraph& stages, ListRule a, ListRule b) {
  if (!std::all_of(stages.stages.begin(), stages.stages.end(), [&](const StageGraph::Stage& stage) {
        return window_of(stage, a) == window_of(stage, b);
      })) {
    return false;
  }
  for (ListRule* rule : {&a, &b}) {
    rule->window_percent = 100;
    rule->window_extra = 0;
    if (stages.llm == 0) {
      rule->encoder_forward_first = false;
    }
    if (one_stage_a_lane(stages)) {
      rule->ignore_transfers = false;
      rule->alternate = false;
    }
  }
  return a == b;
}

}  // namespace

std::vector<ListRule> distinct_rules(const StageGraph& stages, const std::vector<ListRule>& rules) {
  std::vector<ListRule> result;
  for (const ListRule& rule : rules) {
    if (std::none_of(result.begin(), result.end(), [&](const ListRule& other) {
          return alike(stages, rule, other);
        })) {
      result.push_back(rule);
    }
  }
  return result;
}

std::vector<std::int64_t> lane_limits(const Plan& plan) {
  std::vector<std::int64_t> limits;
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    limits.push_back(plan.limits.bytes_of(lane));
  }
  return limits;
}

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

ListScheduler::ListScheduler(const StageGraph& stages, std::vector<std::int64_t> lane_limits)
    : stages_(stages),
      one_stage_a_lane_(one_stage_a_lane(stages)),
      limits_(std::move(lane_limits)),
      lane_end_(stages.lanes.size(), 0),
      stage_(stages.stages.size()),
      lane_(stages.lanes.size()),
      next_(stages.lanes.size(), kNever),
      link_free_(2 * stages.stages.size()),
      received_(at(stages.llm)) {
  limits_.resize(stages.lanes.size(), 0);
}

const ListResult& ListScheduler::run(const ReplicaGraph& graph,
                                     const ListRule& rule,
                                     std::vector<std::vector<Operation>>* orders,
                                     std::int64_t stop_after) {
  run_rule(graph, rule, stop_after);
  if (orders != nullptr) {
    list_orders(*orders);
  }
  return result_;
}

void ListScheduler::list_orders(std::vector<std::vector<Operation>>& orders) const {
  orders.assign(lane_.size(), {});
  for (const OrderReplay::Step& step : replay_.steps) {
    const StageGraph::Stage& stage = stages_.stages[at(step.stage)];
    const OperationKind kind = step.part == OrderPart::kForward    ? OperationKind::kForward
                               : step.part == OrderPart::kBackward ? OperationKind::kBackward
                               : step.part == OrderPart::kInput    ? OperationKind::kBackwardInput
                                                                   : OperationKind::kBackwardWeight;
    orders[at(stage.lane)].push_back({kind, graph_->key(step.group, stage.stage), -1});
  }
}

void ListScheduler::run_rule(const ReplicaGraph& graph,
                             const ListRule& rule,
                             std::int64_t stop_after) {
  const bool fixed = rule.ignore_transfers && !one_stage_a_lane_;
  if (fixed && lane_.size() > 1) {
    merging_ = true;
    start(graph, rule);
    const bool late = !find_merged_orders(stop_after);
    merging_ = false;
    if (late) {
      finish(true);
      return;
    }
  }
  start(graph, rule);
  bool in_time = true;
  if (rule.order != nullptr) {
    merge_as(rule.order(stages_, graph));
    fixed_ = true;
    in_time = run_by_lane(true, stop_after);
  } else if (fixed && lane_.size() == 1) {
    in_time = run_whole_slots(stop_after);
  } else if (fixed || (one_stage_a_lane_ && rule.in_order)) {
    fixed_ = true;
    in_time = run_by_lane(fixed, stop_after);
  } else {
    decide_all();
    in_time = run_by_time(stop_after);
  }
  finish(!in_time);
}

void ListScheduler::decide_all() {
  for (int lane = 0; lane < static_cast<int>(lane_.size()); ++lane) {
    decide(lane);
  }
}

void ListScheduler::finish(bool late) {
  result_.finish_ns.resize(lane_.size());
  result_.peak_bytes.resize(lane_.size());
  bool left = false;
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    result_.finish_ns[lane] = clock_.lane(static_cast<int>(lane)).time;
    result_.peak_bytes[lane] = clock_.lane(static_cast<int>(lane)).peak;
    left = left || lane_[lane].left > 0;
  }
  for (const StageState& state : stage_) {
    left = left || state.next_forward < state.end || state.next_backward < state.end;
  }
  result_.done = !late && !left;
  result_.stuck = !late && left;
}

bool ListScheduler::too_late(int lane, std::int64_t stop_after) const {
  return next_[at(lane)] + lane_[at(lane)].left + lane_end_[at(lane)] > stop_after;
}

bool ListScheduler::run_by_time(std::int64_t stop_after) {
  while (true) {
    const auto first =
        static_cast<int>(std::min_element(next_.begin(), next_.end()) - next_.begin());
    if (next_[at(first)] == kNever) {
      return true;
    }
    if (too_late(first, stop_after)) {
      return false;
    }
    execute(first);
  }
}

void ListScheduler::start(const ReplicaGraph& graph, const ListRule& rule) {
  graph_ = &graph;
  rule_ = rule;
  fixed_ = false;
  runnable_.clear();
  unit_.assign(at(graph_->num_units), {});
  group_.assign(graph_->groups.size(), {});
  std::fill(link_free_.begin(), link_free_.end(), 0);
  std::copy_n(graph_->first_group.begin(), received_.size(), received_.begin());
  replay_.nodes.clear();
  replay_.steps.clear();
  std::fill(lane_.begin(), lane_.end(), LaneWork{});
  clock_.reset(stages_, graph);
  for (std::size_t i = 0; i < stage_.size(); ++i) {
    const StageGraph::Stage& stage = stages_.stages[i];
    StageState& state = stage_[i];
    state.next_forward = graph_->first_group[at(stage.module)];
    state.next_backward = state.next_forward;
    state.end = graph_->first_group[at(stage.module) + 1];
    state.next_weight = 0;
    state.weights.clear();
    state.window = window_of(stage, rule_);
    state.turn = 0;
    state.delay = 0;
    state.halves = rule_.in_order && rule_.weight != WeightHalf::kWhole && stage.both_halves &&
                   (one_stage_a_lane_ || lane_.size() > 1);
  }
  if (rule_.weight == WeightHalf::kDelayed) {
    set_weight_delays();
  }
  link_groups();
  count_work();
  for (int i = 0; i < static_cast<int>(stage_.size()); ++i) {
    skip_without_backward(i);
    if (rule_.in_order) {
      advance(i);
    }
  }
}

// A stage may hold as many slots as the one furthest from the loss that takes part in backward, on
// the ways through it, holds under 1F1B.
void ListScheduler::set_weight_delays() {
  std::vector<int> most(received_.size() + 1, 0);  // [module] slots
  for (const GraphGroup& group : graph_->groups) {
    if (group.first_backward < stages_.num_stages(group.module)) {
      most[at(group.module)] = std::max(most[at(group.module)],
                                        stages_.of(group.module, group.first_backward).warm_up + 1);
    }
  }
  most.back() = *std::max_element(most.begin(), most.end());
  for (std::size_t i = 0; i < stage_.size(); ++i) {
    const StageGraph::Stage& stage = stages_.stages[i];
    stage_[i].delay = std::max(0, most[at(stage.module)] - (stage.warm_up + 1));
  }
}

// What every group waits for, and what is ready from the start.
void ListScheduler::link_groups() {
  const int first_llm = graph_->first_llm_group();
  for (int number = 0; number < static_cast<int>(group_.size()); ++number) {
    const GraphGroup& group = graph_->group(number);
    int& missing = group_[at(number)].missing;
    if (number < first_llm) {
      missing = group.served_end - group.served_begin;
      unit_[at(group.first_unit)].forward_ready = 0;
    } else {
      missing = static_cast<int>(graph_->sources_of(number).size());
      unit_[at(group.first_unit)].forward_ready = missing == 0 ? 0 : -1;
    }
  }
}

void ListScheduler::count_work() {
  for (const GraphGroup& group : graph_->groups) {
    const int first_stage = stages_.first_stage[at(group.module)];
    const int num_stages = stages_.num_stages(group.module);
    for (int stage = 0; stage < num_stages; ++stage) {
      const GraphUnit& unit = graph_->cost(group, first_stage + stage);
      LaneWork& lane = lane_[at(stages_.stages[at(first_stage + stage)].lane)];
      lane.left += unit.forward;
      if (stage >= group.first_backward) {
        lane.left += unit.backward_input + unit.backward_weight;
        lane.recompute = std::max(lane.recompute, unit.recompute.largest);
      }
    }
  }
}

bool ListScheduler::window_open(const StageState& state, int slot) const {
  if (state.window < 0) {
    return true;
  }
  int turn = std::numeric_limits<int>::max() / 2;
  if (at(state.next_weight) < state.weights.size()) {
    turn = graph_->groups[at(state.weights[at(state.next_weight)])].turn;
  }
  if (state.next_backward < state.end) {
    const int group = graph_->backward_order[at(state.next_backward)];
    turn = std::min(turn, graph_->groups[at(group)].turn);
  }
  return slot <= turn + state.window;
}

// Features that receiving up to `group`'s sources adds on the LLM's first lane.
std::int64_t ListScheduler::features_of(int group) const {
  const auto sources = graph_->sources_of(group);
  std::int64_t bytes = 0;
  int module = -1;
  for (std::size_t i = sources.size(); i > 0; --i) {
    const int source = sources[i - 1];
    const GraphGroup& of = graph_->group(source);
    if (of.module == module) {
      continue;  // an earlier one of the same encoder: its message comes before
    }
    module = of.module;
    if (!stages_.stages[at(stages_.first_stage[at(module + 1)] - 1)].crosses) {
      continue;
    }
    for (int g = received_[at(module)]; g <= source; ++g) {
      bytes += clock_.features_of(g);
    }
  }
  return bytes;
}

bool ListScheduler::bytes_open(int stage, int group) const {
  const StageGraph::Stage& of = stages_.stages[at(stage)];
  const std::int64_t limit = limits_[at(of.lane)];
  if (!rule_.obey_bytes || limit == 0) {
    return true;
  }
  const LaneClock& clock = clock_.lane(of.lane);
  const GraphUnit& unit = graph_->cost(graph_->groups[at(group)], stage);
  std::int64_t bytes = unit.activation_bytes + unit.key_value_bytes;
  std::int64_t early = 0;  // received one operation ahead
  if (of.module == stages_.llm && of.stage == 0) {
    early = features_of(group);
  } else if (of.last && of.module != stages_.llm && of.lane == stages_.llm_first_lane) {
    bytes += unit.output_bytes;
  }
  return clock.held + bytes + early + lane_[at(of.lane)].recompute <= limit &&
         clock.during + early <= limit;
}

void ListScheduler::weigh(int stage, std::int64_t free, Decision& best, Decision& spare) {
  const StageState& state = stage_[at(stage)];
  const StageGraph::Stage& of = stages_.stages[at(stage)];
  const auto consider = [&](Decision& into, Choice choice, bool wins_tie) {
    const UnitState& unit =
        unit_[at(graph_->groups[at(next_group(state, choice))].first_unit + of.stage)];
    const std::int64_t ready = choice == Choice::kForward    ? unit.forward_ready
                               : choice == Choice::kBackward ? unit.backward_ready
                                                             : free;
    const std::int64_t time = std::max(free, ready);
    if (ready >= 0 &&
        (into.choice == Choice::kNone || time < into.time || (time == into.time && wins_tie))) {
      into = {time, stage, choice};
    }
  };
  // A merge compares the operations of all stages.
  const auto ranks = [&](Choice choice, bool otherwise) {
    return merging_ ? preference(of.lane, choice) >= preference(of.lane, best.choice) : otherwise;
  };
  if (rule_.in_order) {
    if (state.next != Choice::kNone) {
      consider(best, state.next, ranks(state.next, state.next == Choice::kForward));
    }
    return;
  }
  const bool forward_first = rule_.encoder_forward_first && of.module != stages_.llm;
  if (state.next_forward < state.end &&
      window_open(state, graph_->groups[at(state.next_forward)].slot) &&
      bytes_open(stage, state.next_forward)) {
    consider(best, Choice::kForward, ranks(Choice::kForward, forward_first));
  }
  if (state.next_backward < state.end) {
    const GraphUnit& unit =
        graph_->cost(graph_->groups[at(next_group(state, Choice::kBackward))], stage);
    const bool urgent = rule_.weight == WeightHalf::kWhole || unit.backward_input > 0;
    consider(urgent ? best : spare, Choice::kBackward, ranks(Choice::kBackward, !forward_first));
  }
  if (at(state.next_weight) < state.weights.size()) {
    consider(spare, Choice::kWeight, true);
  }
}

void ListScheduler::decide(int lane) {
  LaneWork& state = lane_[at(lane)];
  Decision best;
  Decision spare;
  for (const int stage : stages_.lanes[at(lane)]) {
    weigh(stage, clock_.lane(lane).time, best, spare);
  }
  if (spare.choice != Choice::kNone) {
    bool take = best.choice == Choice::kNone;
    if (!take && best.time > spare.time) {
      const int group = next_group(stage_[at(spare.stage)], spare.choice);
      const GraphUnit& unit = graph_->cost(graph_->groups[at(group)], spare.stage);
      take = 2 * (best.time - spare.time) >= unit.backward_weight;
    }
    if (take) {
      best = spare;
    }
  }
  state.decision = best;
  next_[at(lane)] = best.choice == Choice::kNone ? kNever : best.time;
  if (merging_) {
    queue(lane);
  }
}

}  // namespace entrain
