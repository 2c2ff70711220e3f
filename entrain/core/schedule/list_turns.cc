// The list scheduler's orders that are fixed before any clock runs: turns, and merges of them.
#include <algorithm>
#include <limits>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
bool ListScheduler::run_whole_slots(std::int64_t stop_after) {
  if (lane_[0].left + lane_end_[0] > stop_after) {
    return false;
  }
  const ReplicaGraph& graph = *graph_;
  const std::vector<int> opening = opening_order(graph);
  const std::vector<int> releasing = releasing_order(graph);
  const int end = graph.end_of(stages_.llm);
  int llm = graph.first_llm_group();
  int llm_turn = llm;
  std::size_t opened = 0;
  std::size_t released = 0;
  const auto forward_slot = [&](int slot) {
    for (; opened < opening.size() && opening_slot(graph, opening[opened]) == slot; ++opened) {
      run_all_forwards(opening[opened]);
    }
    for (; llm < end && graph.group(llm).slot == slot; ++llm) {
      run_all_forwards(llm);
    }
  };
  const auto backward_slot = [&](int slot) {
    for (; llm_turn < end && graph.group(graph.backward_order[at(llm_turn)]).turn == slot;
         ++llm_turn) {
      run_all_backwards(graph.backward_order[at(llm_turn)]);
    }
    for (; released < releasing.size() && graph.group(releasing[released]).turn == slot;
         ++released) {
      run_all_backwards(releasing[released]);
    }
  };
  // The LLM's last stage warms up with no slot, or, under kGpipeRule, with all of them.
  const int warm_up = rule_.in_order && rule_.window_percent == 0 ? graph_->num_slots : 0;
  for (int slot = 0; slot < warm_up; ++slot) {
    forward_slot(slot);
  }
  for (int slot = 0; slot < graph_->num_slots; ++slot) {
    forward_slot(slot);
    backward_slot(slot);
  }
  return true;
}

void ListScheduler::add_transfers(std::int64_t stop_after) {
  const std::int64_t latest = replay().length(*graph_, node_times_);
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    result_.finish_ns[lane] = node_times_[at(replay_.ends[lane].node)];
  }
  result_.done = latest <= stop_after;
}

void ListScheduler::give(const LaneOrders& orders) {
  given_.resize(lane_.size());
  for (std::size_t lane = 0; lane < orders.size(); ++lane) {
    given_[lane].clear();
    for (const Operation& operation : orders[lane]) {
      const bool forward = operation.kind == OperationKind::kForward;
      given_[lane].push_back({stages_.number(operation.unit.module, operation.unit.stage),
                              forward ? Choice::kForward : Choice::kBackward});
    }
  }
}

// An operation of the lane, once its inputs are there.
ListScheduler::Outcome ListScheduler::run_next(int lane,
                                               const Turn& turn,
                                               std::int64_t stop_after) {
  const int group = next_group(stage_[at(turn.stage)], turn.choice);
  const UnitState& unit =
      unit_[at(graph_->groups[at(group)].first_unit + stages_.stages[at(turn.stage)].stage)];
  const std::int64_t ready =
      turn.choice == Choice::kForward ? unit.forward_ready : unit.backward_ready;
  if (ready == never_) {
    return Outcome::kWaits;
  }
  const std::int64_t start = std::max(clock_.lane(lane).time, ready);
  if (start + lane_[at(lane)].left + lane_end_[at(lane)] > stop_after) {
    return Outcome::kLate;
  }
  perform(turn, start);
  return Outcome::kRan;
}

// A lane of one stage, as far as its inputs are there.
ListScheduler::Outcome ListScheduler::run_stage(int lane, std::int64_t stop_after) {
  const int stage = stages_.lanes[at(lane)].front();
  const StageState& of = stage_[at(stage)];
  Outcome outcome = Outcome::kRan;
  while (outcome == Outcome::kRan) {
    outcome =
        of.next == Choice::kNone ? Outcome::kWaits : run_next(lane, {stage, of.next}, stop_after);
  }
  return outcome;
}

// A lane in its order of given_, as far as its inputs are there.
ListScheduler::Outcome ListScheduler::run_given(int lane, std::int64_t stop_after) {
  std::size_t& position = position_[at(lane)];
  const std::vector<Turn>& order = given_[at(lane)];
  for (; position < order.size(); ++position) {
    const Outcome outcome = run_next(lane, order[position], stop_after);
    if (outcome != Outcome::kRan) {
      return outcome;
    }
  }
  return Outcome::kWaits;
}

bool ListScheduler::run_by_lane(bool given, std::int64_t stop_after) {
  position_.assign(lane_.size(), 0);
  for (int lane = static_cast<int>(lane_.size()); lane > 0; --lane) {
    runnable_.push_back(lane - 1);
  }
  while (!runnable_.empty()) {
    const int lane = runnable_.back();
    runnable_.pop_back();
    const Outcome outcome = given ? run_given(lane, stop_after) : run_stage(lane, stop_after);
    if (outcome == Outcome::kLate) {
      return false;
    }
  }
  return true;
}

}  // namespace entrain
