// What a decision of the list scheduler does: clocks, bytes, and what it makes ready elsewhere.
#include <algorithm>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
void ListScheduler::execute(int lane) {
  const Decision decision = lane_[at(lane)].decision;
  if (decision.choice != Choice::kNone) {
    perform(lane,
            decision.stage,
            decision.choice,
            next_group(stage_[at(decision.stage)], decision.choice));
  }
  decide(lane);
}

// At the time of the lane's decision.
void ListScheduler::perform(int lane, int stage, Choice choice, int group) {
  ++operations_;
  StageState& state = stage_[at(stage)];
  if (choice == Choice::kForward) {
    ++state.next_forward;
    run_forward(lane, stage, group);
  } else if (choice == Choice::kBackward) {
    ++state.next_backward;
    skip_without_backward(stage);
    run_backward(lane, stage, group);
  } else {
    ++state.next_weight;
    run_weight(lane, stage, group);
  }
  lane_[at(lane)].wants_forward = choice != Choice::kForward;
  if (rule_.in_order) {
    advance(stage);
  }
}

// Receives come one operation ahead of need, in the sender's order.
void ListScheduler::receive_features(int group) {
  clock_.lane(stages_.llm_first_lane).hold_ahead(features_of(group));
  for (const int source : graph_->sources_of(group)) {
    int& received = received_[at(graph_->group(source).module)];
    received = std::max(received, source + 1);
  }
}

void ListScheduler::run_forward(int lane, int stage, int group) {
  LaneWork& state = lane_[at(lane)];
  const StageGraph::Stage& place = stages_.stages[at(stage)];
  if (place.module == stages_.llm && place.stage == 0) {
    receive_features(group);
  }
  state.left -= clock_.forward(stage, group, state.decision.time);
  replay_.steps.push_back({stage, group, OrderPart::kForward});
  send_forward(stage, group, clock_.lane(lane).time);
}

const std::vector<std::int64_t>& ListScheduler::replayed_bytes(const ReplicaGraph& graph,
                                                               const OrderReplay& replay) {
  graph_ = &graph;
  std::copy_n(graph.first_group.begin(), received_.size(), received_.begin());
  clock_.reset(stages_, graph);
  for (const OrderReplay::Step& step : replay.steps) {
    if (step.part == OrderPart::kForward) {
      const StageGraph::Stage& of = stages_.stages[at(step.stage)];
      if (of.module == stages_.llm && of.stage == 0) {
        receive_features(step.group);
      }
      clock_.forward(step.stage, step.group, 0);
    } else if (step.part == OrderPart::kWeight) {
      clock_.backward_weight(step.stage, step.group, 0);
    } else {
      clock_.backward(step.stage, step.group, step.part == OrderPart::kInput, 0);
    }
  }
  result_.peak_bytes.resize(lane_.size());
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    result_.peak_bytes[lane] = clock_.lane(static_cast<int>(lane)).peak;
  }
  return result_.peak_bytes;
}

// `made`: bytes of gradients of keys and values that the backward makes.
bool ListScheduler::splits(const GraphUnit& unit, int lane, std::int64_t made) const {
  if (unit.backward_input == 0 || unit.backward_weight == 0) {
    return false;
  }
  const std::int64_t limit = limits_[at(lane)];
  return unit.recompute.all == 0 || !rule_.obey_bytes || limit == 0 ||
         clock_.lane(lane).held + made + unit.recompute.all + lane_[at(lane)].recompute <= limit;
}

void ListScheduler::run_backward(int lane, int stage, int group) {
  LaneWork& state = lane_[at(lane)];
  const GraphUnit& unit = graph_->cost(graph_->group(group), stage);
  const bool split = rule_.weight == WeightHalf::kFilling
                         ? splits(unit, lane, clock_.ended_bytes(stage, group, true))
                         : stage_[at(stage)].halves;
  const std::int64_t duration = clock_.backward(stage, group, split, state.decision.time);
  // The extra time of halves was not among what was left.
  state.left -= split ? duration - unit.split : duration;
  if (split) {
    stage_[at(stage)].weights.push_back(group);
  }
  replay_.steps.push_back({stage, group, split ? OrderPart::kInput : OrderPart::kBackward});
  send_backward(stage, group, clock_.lane(lane).time);
}

void ListScheduler::run_weight(int lane, int stage, int group) {
  LaneWork& state = lane_[at(lane)];
  state.left -= clock_.backward_weight(stage, group, state.decision.time);
  replay_.steps.push_back({stage, group, OrderPart::kWeight});
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
    const std::int64_t arrival = transfer(stage - 1, true, finish, of);
    unit_[at(unit)].backward_ready = arrival;
    const int lane = stages_.stages[at(stage - 1)].lane;
    if (lane != place.lane && next_backward_is(stage - 1, group)) {
      wake(lane);
    }
    return;
  }
  if (place.module != stages_.llm) {
    return;
  }
  for (const int source : graph_->sources_of(group)) {
    const GraphGroup& encoder = graph_->groups[at(source)];
    const int last = stages_.num_stages(encoder.module) - 1;
    if (encoder.first_backward > last || --group_[at(source)].missing > 0) {
      continue;
    }
    const int unit = encoder.first_unit + last;
    const int number = stages_.first_stage[at(encoder.module)] + last;
    const std::int64_t arrival = transfer(number, true, finish, encoder);
    unit_[at(unit)].backward_ready = arrival;
    const int lane = stages_.stages[at(number)].lane;
    if (lane != place.lane && next_backward_is(number, source)) {
      wake(lane);
    }
  }
}

}  // namespace entrain
