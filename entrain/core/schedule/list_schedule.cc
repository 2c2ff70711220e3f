#include "entrain/core/schedule/list_schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

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
      rank_bits_(static_cast<int>(std::bit_width(kChoices * kChoices * stages.stages.size()))),
      never_(std::numeric_limits<std::int64_t>::max() >> rank_bits_),
      none_(never_ << rank_bits_),
      leaves_(std::bit_ceil(stages.lanes.size())),
      link_free_(2 * stages.stages.size()),
      received_(at(stages.llm)) {
  limits_.resize(stages.lanes.size(), 0);
  limited_ =
      std::any_of(limits_.begin(), limits_.end(), [](std::int64_t limit) { return limit > 0; });
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
  merging_ = fixed && lane_.size() > 1 && rule.order == nullptr;
  start(graph, rule);
  bool in_time = true;
  if (rule.order != nullptr) {
    give(rule.order(stages_, graph));
    fixed_ = true;
    in_time = run_by_lane(true, stop_after);
  } else if (fixed && !merging_) {
    in_time = run_whole_slots(stop_after);
  } else if (one_stage_a_lane_ && rule.in_order) {
    fixed_ = true;
    in_time = run_by_lane(false, stop_after);
  } else {
    in_time = run_by_time(stop_after);
  }
  finish(!in_time);
  if (merging_ && result_.done) {
    add_transfers(stop_after);
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

[[gnu::flatten]] bool ListScheduler::run_by_time(std::int64_t stop_after) {
  next_.assign(2 * leaves_, none_);
  turns_.assign(std::size_t{1} << rank_bits_, {});
  if (merging_) {
    rank_by_preference();
  } else {
    rank_by_lane();
  }
  for (int stage = 0; stage < static_cast<int>(stage_.size()); ++stage) {
    look_ahead(stage, Choice::kForward);
    look_ahead(stage, Choice::kBackward);
  }
  for (int lane = 0; lane < static_cast<int>(lane_.size()); ++lane) {
    decide(lane);
  }
  while (true) {
    const std::int64_t first = next_[1];
    if (first >= none_) {
      return true;
    }
    const std::int64_t time = first >> rank_bits_;
    const Turn turn = turn_of(first);
    const int lane = stages_.stages[at(turn.stage)].lane;
    if (time + lane_[at(lane)].left + lane_end_[at(lane)] > stop_after) {
      return false;
    }
    perform(turn, time);
    look_ahead(turn.stage, turn.choice);
    decide(lane);
  }
}

void ListScheduler::start(const ReplicaGraph& graph, const ListRule& rule) {
  graph_ = &graph;
  rule_ = rule;
  fixed_ = false;
  runnable_.clear();
  unit_.assign(at(graph_->num_units) + 1, {never_, never_});
  group_.assign(graph_->groups.size(), {});
  std::fill(link_free_.begin(), link_free_.end(), 0);
  std::copy_n(graph_->first_group.begin(), received_.size(), received_.begin());
  replay_.nodes.clear();
  replay_.steps.clear();
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    lane_[lane] = {.limit = rule_.obey_bytes ? limits_[lane] : 0};
  }
  clock_.reset(stages_, graph, limited_);
  for (std::size_t i = 0; i < stage_.size(); ++i) {
    const StageGraph::Stage& stage = stages_.stages[i];
    StageState& state = stage_[i];
    state.next_forward = graph_->first_group[at(stage.module)];
    state.next_backward = state.next_forward;
    state.end = graph_->first_group[at(stage.module) + 1];
    state.next_weight = 0;
    state.weights.clear();
    state.window = window_of(stage, rule_);
    state.last_slot = kLastSlot;
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
      unit_[at(group.first_unit)].forward_ready = missing == 0 ? 0 : never_;
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

// Requires  the lane has a limit.
bool ListScheduler::bytes_open(int stage, int group) const {
  const StageGraph::Stage& of = stages_.stages[at(stage)];
  const LaneWork& lane = lane_[at(of.lane)];
  const LaneClock& clock = clock_.lane(of.lane);
  const GraphUnit& unit = graph_->cost(graph_->groups[at(group)], stage);
  std::int64_t bytes = unit.activation_bytes + unit.key_value_bytes;
  std::int64_t early = 0;  // received one operation ahead
  if (of.module == stages_.llm && of.stage == 0) {
    early = features_of(group);
  } else if (of.last && of.module != stages_.llm && of.lane == stages_.llm_first_lane) {
    bytes += unit.output_bytes;
  }
  return clock.held + bytes + early + lane.recompute <= lane.limit &&
         clock.during + early <= lane.limit;
}

// Of equals on a lane, that which comes last among those that go before others: forwards or
// backwards, and weight gradients; else that which comes first. Of lanes the first.
void ListScheduler::rank_by_lane() {
  int below = 0;
  for (const std::vector<int>& of_lane : stages_.lanes) {
    const int count = kChoices * static_cast<int>(of_lane.size());
    int position = 0;
    for (const int stage : of_lane) {
      const bool forward_first =
          rule_.in_order ||
          (rule_.encoder_forward_first && stages_.stages[at(stage)].module != stages_.llm);
      for (const Choice choice : {Choice::kForward, Choice::kBackward, Choice::kWeight}) {
        const bool before = choice == Choice::kWeight
                                ? !rule_.in_order
                                : (choice == Choice::kForward) == forward_first;
        const int rank = below + count + (before ? -1 - position : position);
        stage_[at(stage)].rank[static_cast<std::size_t>(choice)] = rank;
        turns_[at(rank)] = {stage, choice};
        ++position;
      }
    }
    below += 2 * count;
  }
}

// `after`: kinds that go before.
int ListScheduler::preference(int stage, Choice choice, int after) const {
  const int num_stages = static_cast<int>(stage_.size());
  return (after * num_stages + num_stages - 1 - stage) * kChoices + static_cast<int>(choice);
}

// A merge compares the operations of all stages: of those that can start at one time a backward
// goes first, or, for ListRule::alternate after one, last; then the stage nearest to the loss.
void ListScheduler::rank_by_preference() {
  for (int stage = 0; stage < static_cast<int>(stage_.size()); ++stage) {
    const auto rank = [&](Choice choice, int after) {
      const int number = preference(stage, choice, after);
      stage_[at(stage)].rank[static_cast<std::size_t>(choice)] = number;
      turns_[at(number)] = {stage, choice};
    };
    rank(Choice::kBackward, 2);
    rank(Choice::kBackward, 0);
    rank(Choice::kForward, 1);
    rank(Choice::kWeight, 2);
  }
}

void ListScheduler::look_ahead(int stage, Choice choice) {
  StageState& state = stage_[at(stage)];
  const int index = stages_.stages[at(stage)].stage;
  if (choice == Choice::kForward) {
    state.forward = graph_->num_units;
    state.slot = std::numeric_limits<int>::max();
    if (state.next_forward < state.end) {
      const GraphGroup& group = graph_->group(state.next_forward);
      state.forward = group.first_unit + index;
      state.slot = group.slot;
    }
    return;
  }
  if (choice == Choice::kBackward) {
    state.backward = graph_->num_units;
    state.backward_turn = kLastSlot;
    if (state.next_backward < state.end) {
      const GraphGroup& group = graph_->group(next_group(state, choice));
      state.backward = group.first_unit + index;
      state.backward_turn = group.turn;
      state.urgent = rule_.in_order || rule_.weight == WeightHalf::kWhole ||
                     graph_->cost(group, stage).backward_input > 0;
    }
  }
  state.weight_left = at(state.next_weight) < state.weights.size();
  if (state.window >= 0) {
    const int turn =
        state.weight_left ? graph_->group(next_group(state, Choice::kWeight)).turn : kLastSlot;
    state.last_slot = std::min(state.backward_turn, turn) + state.window;
  }
}

void ListScheduler::decide(int lane) {
  const std::int64_t free = clock_.lane(lane).time;
  std::int64_t best = none_;
  std::int64_t spare = none_;
  for (const int stage : stages_.lanes[at(lane)]) {
    StageState& state = stage_[at(stage)];
    if (merging_ && rule_.alternate) {
      const bool last = lane_[at(lane)].wants_forward;
      state.rank[static_cast<std::size_t>(Choice::kBackward)] =
          preference(stage, Choice::kBackward, last ? 2 : 0);
    }
    const auto weigh = [&](Choice choice, std::int64_t ready) {
      return decision(state, choice, std::max(free, ready));
    };
    const std::int64_t backward =
        weigh(Choice::kBackward, unit_[at(state.backward)].backward_ready);
    if (rule_.in_order) {
      state.opens = state.next == Choice::kForward;
      best = std::min(best, state.next == Choice::kBackward ? backward : none_);
      best = std::min(best, state.next == Choice::kWeight ? weigh(Choice::kWeight, free) : none_);
    } else {
      state.opens = state.slot <= state.last_slot &&
                    (lane_[at(lane)].limit == 0 || bytes_open(stage, state.next_forward));
      best = std::min(best, state.urgent ? backward : none_);
      spare = std::min(spare, state.urgent ? none_ : backward);
      spare = std::min(spare, state.weight_left ? weigh(Choice::kWeight, free) : none_);
    }
    const std::int64_t forward = weigh(Choice::kForward, unit_[at(state.forward)].forward_ready);
    best = std::min(best, state.opens ? forward : none_);
  }
  lane_[at(lane)].best = best;
  lane_[at(lane)].spare = spare;
  settle(lane);
}

}  // namespace entrain
