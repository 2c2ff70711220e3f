// The list scheduler's replay of `gpipe` and `1f1b`: orders that are fixed before any clock runs.
#include <algorithm>

#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

const ListResult& ListScheduler::run_turns(const ReplicaGraph& graph,
                                           const ListRule& rule,
                                           std::int64_t stop_after) {
  if (one_stage_a_lane_) {
    return run(graph, rule, nullptr, stop_after);
  }
  orders_ = nullptr;
  if (lane_.size() == 1) {
    start(graph, rule);
    return finish(!run_whole_slots(stop_after));
  }
  merging_ = true;
  start(graph, rule);
  find_merged_orders();
  merging_ = false;
  start(graph, rule);
  fixed_ = true;
  return finish(!run_by_lane(true, stop_after));
}

void ListScheduler::sort_by_slot() {
  const int first_llm = graph_->first_group[at(stages_.llm)];
  opened_.resize(at(first_llm));
  for (int group = 0; group < first_llm; ++group) {
    opened_[at(group)] = group;
  }
  released_ = opened_;
  const auto opens = [this](int group) {
    const GraphGroup& of = graph_->groups[at(group)];
    return graph_->groups[at(graph_->served[at(of.served_begin)])].slot;
  };
  std::stable_sort(
      opened_.begin(), opened_.end(), [&](int a, int b) { return opens(a) < opens(b); });
  std::stable_sort(released_.begin(), released_.end(), [this](int a, int b) {
    const GraphGroup& of_a = graph_->groups[at(a)];
    const GraphGroup& of_b = graph_->groups[at(b)];
    return of_a.turn != of_b.turn ? of_a.turn < of_b.turn : of_a.completing > of_b.completing;
  });
}

bool ListScheduler::run_whole_slots(std::int64_t stop_after) {
  LaneState& lane = lane_[0];
  if (lane.left + lane_end_[0] > stop_after) {
    return false;
  }
  sort_by_slot();
  const auto forward = [&](int group) {
    const int module = graph_->groups[at(group)].module;
    for (int stage = 0; stage < stages_.num_stages(module); ++stage) {
      const int number = stages_.first_stage[at(module)] + stage;
      ++stage_[at(number)].next_forward;
      lane.decision.time = lane.free;
      run_forward(0, number, group);
    }
  };
  const auto backward = [&](int group) {
    const GraphGroup& of = graph_->groups[at(group)];
    for (int stage = stages_.num_stages(of.module) - 1; stage >= of.first_backward; --stage) {
      const int number = stages_.first_stage[at(of.module)] + stage;
      ++stage_[at(number)].next_backward;
      skip_without_backward(number);
      lane.decision.time = lane.free;
      run_backward(0, number, group);
    }
  };
  const std::vector<GraphGroup>& groups = graph_->groups;
  const int end = graph_->first_group.back();
  int llm = graph_->first_group[at(stages_.llm)];
  int llm_turn = llm;
  std::size_t opened = 0;
  std::size_t released = 0;
  const auto forward_slot = [&](int slot) {
    for (; opened < opened_.size() &&
           groups[at(graph_->served[at(groups[at(opened_[opened])].served_begin)])].slot == slot;
         ++opened) {
      forward(opened_[opened]);
    }
    for (; llm < end && groups[at(llm)].slot == slot; ++llm) {
      forward(llm);
    }
  };
  const auto backward_slot = [&](int slot) {
    for (; llm_turn < end && groups[at(graph_->backward_order[at(llm_turn)])].turn == slot;
         ++llm_turn) {
      backward(graph_->backward_order[at(llm_turn)]);
    }
    for (; released < released_.size() && groups[at(released_[released])].turn == slot;
         ++released) {
      backward(released_[released]);
    }
  };
  // The LLM's last stage warms up with no slot, or, where the window is open, with all of them.
  const int warm_up = rule_.window_percent == 0 ? graph_->num_slots : 0;
  for (int slot = 0; slot < warm_up; ++slot) {
    forward_slot(slot);
  }
  for (int slot = 0; slot < graph_->num_slots; ++slot) {
    forward_slot(slot);
    backward_slot(slot);
  }
  return true;
}

// Of lanes whose operations start at one time the greatest runs first: a backward, then the stage
// nearest to the loss.
int ListScheduler::urgency(const Decision& decision) const {
  const int num_stages = static_cast<int>(stage_.size());
  return (decision.choice == Choice::kBackward ? num_stages : 0) + decision.stage;
}

// For find_merged_orders(): what the lane runs next, unless it decides anew before.
void ListScheduler::queue(int lane) {
  const Decision& decision = lane_[at(lane)].decision;
  if (decision.choice != Choice::kNone) {
    queue_.push_back({decision.time, urgency(decision), lane});
    std::push_heap(queue_.begin(), queue_.end());
  }
}

void ListScheduler::find_merged_orders() {
  merged_.resize(lane_.size());
  for (std::vector<Decision>& of_lane : merged_) {
    of_lane.clear();
  }
  queue_.clear();
  decide_all();
  while (!queue_.empty()) {
    const Queued first = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end());
    queue_.pop_back();
    const Decision decision = lane_[at(first.lane)].decision;
    const bool current = decision.choice != Choice::kNone && decision.time == first.time &&
                         urgency(decision) == first.urgency;
    if (current) {
      merged_[at(first.lane)].push_back(decision);
      execute(first.lane);
    }
  }
}

// Of `stage`, which stands on `lane`: its next forward or backward, once its inputs are there.
ListScheduler::Outcome ListScheduler::run_next(int lane,
                                               int stage,
                                               bool forward,
                                               std::int64_t stop_after) {
  LaneState& state = lane_[at(lane)];
  StageState& of = stage_[at(stage)];
  const int group = forward ? of.next_forward : graph_->backward_order[at(of.next_backward)];
  const UnitState& unit =
      unit_[at(graph_->groups[at(group)].first_unit + stages_.stages[at(stage)].stage)];
  const std::int64_t ready = forward ? unit.forward_ready : unit.backward_ready;
  if (ready < 0) {
    return Outcome::kWaits;
  }
  state.decision.time = std::max(state.free, ready);
  if (state.decision.time + state.left + lane_end_[at(lane)] > stop_after) {
    return Outcome::kLate;
  }
  if (forward) {
    ++of.next_forward;
    run_forward(lane, stage, group);
  } else {
    ++of.next_backward;
    skip_without_backward(stage);
    run_backward(lane, stage, group);
  }
  return Outcome::kRan;
}

// What a lane of one stage runs next, in order: forwards within the window before the turn's
// backwards.
bool ListScheduler::next_is_forward(const StageState& of) const {
  if (of.next_forward == of.end || of.next_backward == of.end || of.window < 0) {
    return of.next_forward < of.end;
  }
  const int turn = graph_->groups[at(graph_->backward_order[at(of.next_backward)])].turn;
  return graph_->groups[at(of.next_forward)].slot <= turn + of.window;
}

// What the lane runs next where its order is fixed: by the rule on a lane of one stage, or by what
// find_merged_orders() has found. kNone: nothing is left.
ListScheduler::Decision ListScheduler::next_of(int lane, bool merged) const {
  if (merged) {
    const std::size_t next = position_[at(lane)];
    return next < merged_[at(lane)].size() ? merged_[at(lane)][next] : Decision{};
  }
  const int stage = stages_.lanes[at(lane)].front();
  const StageState& of = stage_[at(stage)];
  if (next_is_forward(of)) {
    return {0, stage, Choice::kForward};
  }
  return {0, stage, of.next_backward < of.end ? Choice::kBackward : Choice::kNone};
}

bool ListScheduler::run_by_lane(bool merged, std::int64_t stop_after) {
  position_.assign(lane_.size(), 0);
  for (int lane = static_cast<int>(lane_.size()); lane > 0; --lane) {
    runnable_.push_back(lane - 1);
  }
  while (!runnable_.empty()) {
    const int lane = runnable_.back();
    runnable_.pop_back();
    Outcome outcome = Outcome::kRan;
    while (outcome == Outcome::kRan) {
      const Decision next = next_of(lane, merged);
      outcome = next.choice == Choice::kNone
                    ? Outcome::kWaits
                    : run_next(lane, next.stage, next.choice == Choice::kForward, stop_after);
      position_[at(lane)] += outcome == Outcome::kRan ? 1 : 0;
    }
    if (outcome == Outcome::kLate) {
      return false;
    }
  }
  return true;
}

}  // namespace entrain
