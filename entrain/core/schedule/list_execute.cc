// What a decision of the list scheduler does: clocks, bytes, and what it makes ready elsewhere.
#include <algorithm>

#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

void ListScheduler::execute(int lane) {
  const Decision decision = lane_[at(lane)].decision;
  StageState& state = stage_[at(std::max(0, decision.stage))];
  switch (decision.choice) {
    case Choice::kForward:
      run_forward(lane, decision.stage, state.next_forward++);
      break;
    case Choice::kBackward: {
      const int group = graph_->backward_order[at(state.next_backward++)];
      skip_without_backward(decision.stage);
      run_backward(lane, decision.stage, group);
      break;
    }
    case Choice::kWeight:
      run_weight(lane, decision.stage);
      break;
    case Choice::kNone:
      break;
  }
  decide(lane);
}

void ListScheduler::wake(int lane) {
  if (fixed_) {
    runnable_.push_back(lane);
  } else {
    decide(lane);
  }
}

void ListScheduler::emit(int lane, OperationKind kind, int stage, int group) {
  if (orders_ != nullptr) {
    const GraphGroup& of = graph_->groups[at(group)];
    (*orders_)[at(lane)].push_back(
        {kind, {of.module, stages_.stages[at(stage)].stage, of.slot, of.group}, -1});
  }
}

std::int64_t ListScheduler::ended_bytes(int group, int stage, bool backward) const {
  const GraphGroup& of = graph_->groups[at(group)];
  std::int64_t bytes = 0;
  for (int i = of.ended_begin; i < of.ended_end; ++i) {
    const GraphGroup& ended = graph_->groups[at(graph_->ended[at(i)])];
    if ((stage >= ended.first_backward) == backward) {
      bytes += graph_->cost(ended, stages_.first_stage[at(of.module)] + stage).key_value_bytes;
    }
  }
  return bytes;
}

// Receives stand one operation ahead of need, in the sender's order.
void ListScheduler::receive_features(int lane, int group) {
  LaneState& state = lane_[at(lane)];
  const std::int64_t bytes = features_of(group);
  state.peak = std::max(state.peak, state.during + bytes);
  state.held += bytes;
  const int first_llm = graph_->first_group[at(stages_.llm)];
  for (int i = first_source_[at(group - first_llm)]; i < first_source_[at(group - first_llm + 1)];
       ++i) {
    const int source = sources_[at(i)];
    int& received = received_[at(graph_->groups[at(source)].module)];
    received = std::max(received, source + 1);
  }
}

void ListScheduler::release_features(int group) {
  const int first_llm = graph_->first_group[at(stages_.llm)];
  for (int i = first_source_[at(group - first_llm)]; i < first_source_[at(group - first_llm + 1)];
       ++i) {
    const int source = sources_[at(i)];
    if (--group_[at(source)].takers_left == 0) {
      const GraphGroup& of = graph_->groups[at(source)];
      const int last = stages_.num_stages(of.module) - 1;
      lane_[at(stages_.llm_first_lane)].held -=
          graph_->cost(of, stages_.first_stage[at(of.module)] + last).output_bytes;
    }
  }
}

void ListScheduler::run_forward(int lane, int stage, int number) {
  LaneState& state = lane_[at(lane)];
  const StageGraph::Stage& place = stages_.stages[at(stage)];
  const GraphGroup& group = graph_->groups[at(number)];
  const GraphUnit& unit = graph_->cost(group, stage);
  const bool takes_features = place.module == stages_.llm && place.stage == 0;
  if (takes_features) {
    receive_features(lane, number);
  }
  const bool leaves_features =
      place.last && place.module != stages_.llm && lane == stages_.llm_first_lane;
  state.free = state.decision.time + unit.forward;
  state.left -= unit.forward;
  const bool takes_backward = place.stage >= group.first_backward;
  state.held += unit.activation_bytes + (leaves_features ? unit.output_bytes : 0) +
                (takes_backward ? 0 : unit.key_value_bytes);
  state.during = state.held;
  state.peak = std::max(state.peak, state.held);
  state.held -= ended_bytes(number, place.stage, false);
  if (!takes_backward) {
    state.held -= unit.activation_bytes;
    if (takes_features) {
      release_features(number);
    }
  }
  emit(lane, OperationKind::kForward, stage, number);
  send_forward(stage, number, state.free);
}

// `made`: bytes of gradients of keys and values that the backward makes.
bool ListScheduler::splits(const GraphUnit& unit, int lane, std::int64_t made) const {
  if (!rule_.split_weight || unit.backward_input == 0 || unit.backward_weight == 0) {
    return false;
  }
  const LaneState& state = lane_[at(lane)];
  const std::int64_t limit = limits_[at(lane)];
  return unit.recompute.all == 0 || !rule_.obey_bytes || limit == 0 ||
         state.held + made + unit.recompute.all + state.recompute <= limit;
}

void ListScheduler::run_backward(int lane, int stage, int number) {
  LaneState& state = lane_[at(lane)];
  const StageGraph::Stage& place = stages_.stages[at(stage)];
  const GraphGroup& group = graph_->groups[at(number)];
  const GraphUnit& unit = graph_->cost(group, stage);
  const std::int64_t made = ended_bytes(number, place.stage, true);
  const bool split = splits(unit, lane, made);
  const std::int64_t recomputed = split ? unit.recompute.all : unit.recompute.largest;
  const std::int64_t duration = unit.backward_input + (split ? 0 : unit.backward_weight);
  state.free = state.decision.time + duration;
  state.left -= split ? duration - unit.split : duration;
  state.held += made + recomputed;
  state.during = state.held;
  state.peak = std::max(state.peak, state.held);
  state.held -= unit.key_value_bytes;
  if (split) {
    stage_[at(stage)].weights.push_back(number);
  } else {
    state.held -= unit.activation_bytes + recomputed;
  }
  if (place.module == stages_.llm && place.stage == 0) {
    release_features(number);
  }
  emit(lane, split ? OperationKind::kBackwardInput : OperationKind::kBackward, stage, number);
  send_backward(stage, number, state.free);
}

void ListScheduler::run_weight(int lane, int stage) {
  LaneState& state = lane_[at(lane)];
  StageState& of = stage_[at(stage)];
  const int number = of.weights[at(of.next_weight++)];
  const GraphUnit& unit = graph_->cost(graph_->groups[at(number)], stage);
  const std::int64_t duration = unit.backward_weight + unit.split;
  state.free = state.decision.time + duration;
  state.left -= duration;
  state.during = state.held;
  state.held -= unit.activation_bytes + unit.recompute.all;
  emit(lane, OperationKind::kBackwardWeight, stage, number);
}

// Arrival of a unit's message over the edge behind a stage.
std::int64_t ListScheduler::transfer(int stage,
                                     bool gradient,
                                     std::int64_t start,
                                     const GraphGroup& group) {
  if (!stages_.stages[at(stage)].crosses) {
    return start;
  }
  std::int64_t& free = link_free_[2 * at(stage) + (gradient ? 1 : 0)];
  free = std::max(start, free) + transfer_ns_[at(graph_->cost_index(group, stage))];
  return free;
}

void ListScheduler::send_forward(int stage, int group, std::int64_t finish) {
  const StageGraph::Stage& place = stages_.stages[at(stage)];
  const GraphGroup& of = graph_->groups[at(group)];
  const int unit = of.first_unit + place.stage;
  if (place.last && place.module == stages_.llm) {
    if (place.stage >= of.first_backward) {
      unit_[at(unit)].backward_ready = finish;
    }
    return;
  }
  const std::int64_t arrival = transfer(stage, false, finish, of);
  if (!place.last) {
    unit_[at(unit + 1)].forward_ready = arrival;
    const int next = stages_.stages[at(stage + 1)].lane;
    if (next != place.lane && stage_[at(stage + 1)].next_forward == group) {
      wake(next);
    }
    return;
  }
  bool opens = false;
  for (int i = of.served_begin; i < of.served_end; ++i) {
    GroupState& taker = group_[at(graph_->served[at(i)])];
    taker.latest = std::max(taker.latest, arrival);
    if (--taker.missing == 0) {
      const int served = graph_->served[at(i)];
      unit_[at(graph_->groups[at(served)].first_unit)].forward_ready = taker.latest;
      opens = opens || stage_[at(stages_.first_stage[at(stages_.llm)])].next_forward == served;
    }
  }
  if (opens && stages_.llm_first_lane != place.lane) {
    wake(stages_.llm_first_lane);
  }
}

void ListScheduler::send_backward(int stage, int group, std::int64_t finish) {
  const StageGraph::Stage& place = stages_.stages[at(stage)];
  const GraphGroup& of = graph_->groups[at(group)];
  if (place.stage > 0) {
    if (place.stage - 1 < of.first_backward) {
      return;
    }
    const int unit = of.first_unit + place.stage - 1;
    unit_[at(unit)].backward_ready = transfer(stage - 1, true, finish, of);
    const int lane = stages_.stages[at(stage - 1)].lane;
    if (lane != place.lane && next_backward_is(stage - 1, group)) {
      wake(lane);
    }
    return;
  }
  if (place.module != stages_.llm) {
    return;
  }
  const int first_llm = graph_->first_group[at(stages_.llm)];
  for (int i = first_source_[at(group - first_llm)]; i < first_source_[at(group - first_llm + 1)];
       ++i) {
    const int source = sources_[at(i)];
    const GraphGroup& encoder = graph_->groups[at(source)];
    const int last = stages_.num_stages(encoder.module) - 1;
    if (encoder.first_backward > last || --group_[at(source)].missing > 0) {
      continue;
    }
    const int unit = encoder.first_unit + last;
    const int number = stages_.first_stage[at(encoder.module)] + last;
    unit_[at(unit)].backward_ready = transfer(number, true, finish, encoder);
    const int lane = stages_.stages[at(number)].lane;
    if (lane != place.lane && next_backward_is(number, source)) {
      wake(lane);
    }
  }
}

}  // namespace entrain
