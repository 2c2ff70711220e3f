// What a decision of the list scheduler does: clocks, bytes, and what it makes ready elsewhere.
#include <algorithm>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
// Receives come one operation ahead of need, in the sender's order.
void ListScheduler::receive_features(int group) {
  clock_.lane(stages_.llm_first_lane).hold_ahead(features_of(group));
  for (const int source : graph_->sources_of(group)) {
    int& received = received_[at(graph_->group(source).module)];
    received = std::max(received, source + 1);
  }
}

inline void ListScheduler::send_forward(const UnitAt& unit, std::int64_t finish) {
  const StageGraph::Stage& place = unit.place;
  const int number = unit.number();
  if (place.last && place.module == stages_.llm) {
    if (unit.takes_backward()) {
      unit_[at(number)].backward_ready = finish;
    }
    return;
  }
  const std::int64_t arrival = transfer(unit.stage, false, finish, unit.of);
  if (!place.last) {
    unit_[at(number + 1)].forward_ready = arrival;
    if (stage_[at(unit.stage + 1)].next_forward == unit.group) {
      offer({unit.stage + 1, Choice::kForward}, place.lane, arrival);
    }
    return;
  }
  const int first_llm = stages_.first_stage[at(stages_.llm)];
  for (const int served : graph_->served_by(unit.of)) {
    GroupState& taker = group_[at(served)];
    taker.latest = std::max(taker.latest, arrival);
    if (--taker.missing == 0) {
      unit_[at(graph_->group(served).first_unit)].forward_ready = taker.latest;
      if (stage_[at(first_llm)].next_forward == served) {
        offer({first_llm, Choice::kForward}, place.lane, taker.latest);
      }
    }
  }
}

inline void ListScheduler::send_backward(const UnitAt& unit, std::int64_t finish) {
  const StageGraph::Stage& place = unit.place;
  if (place.stage > unit.of.first_backward) {
    const int before = unit.stage - 1;
    const std::int64_t arrival = transfer(before, true, finish, unit.of);
    unit_[at(unit.number() - 1)].backward_ready = arrival;
    if (next_backward_is(before, unit.group)) {
      offer({before, Choice::kBackward}, place.lane, arrival);
    }
  }
  if (place.stage > 0 || place.module != stages_.llm) {
    return;
  }
  for (const int source : graph_->sources_of(unit.group)) {
    const GraphGroup& encoder = graph_->group(source);
    const int last = stages_.num_stages(encoder.module) - 1;
    if (encoder.first_backward > last || --group_[at(source)].missing > 0) {
      continue;
    }
    const int stage = stages_.number(encoder.module, last);
    const std::int64_t arrival = transfer(stage, true, finish, encoder);
    unit_[at(encoder.first_unit + last)].backward_ready = arrival;
    if (next_backward_is(stage, source)) {
      offer({stage, Choice::kBackward}, place.lane, arrival);
    }
  }
}

inline void ListScheduler::run_forward(const UnitAt& unit, std::int64_t start) {
  if (limited_ && unit.place.module == stages_.llm && unit.place.stage == 0) {
    receive_features(unit.group);
  }
  const std::int64_t duration = clock_.forward(unit, start);
  lane_[at(unit.place.lane)].left -= duration;
  replay_.steps.push_back({unit.stage, unit.group, OrderPart::kForward});
  send_forward(unit, start + duration);
}

// `made`: bytes of gradients of keys and values that the backward makes.
inline bool ListScheduler::splits(const UnitAt& unit, std::int64_t made) const {
  const GraphUnit& cost = unit.cost;
  if (cost.backward_input == 0 || cost.backward_weight == 0) {
    return false;
  }
  const LaneWork& lane = lane_[at(unit.place.lane)];
  return cost.recompute.all == 0 || lane.limit == 0 ||
         clock_.lane(unit.place.lane).held + made + cost.recompute.all + lane.recompute <=
             lane.limit;
}

inline void ListScheduler::run_backward(const UnitAt& unit, std::int64_t start) {
  StageState& state = stage_[at(unit.stage)];
  const bool split = rule_.weight == WeightHalf::kFilling
                         ? splits(unit, limited_ ? clock_.ended_bytes(unit, true) : 0)
                         : state.halves;
  const std::int64_t duration = clock_.backward(unit, split, start);
  // The extra time of halves was not among what was left.
  lane_[at(unit.place.lane)].left -= split ? duration - unit.cost.split : duration;
  if (split) {
    state.weights.push_back(unit.group);
  }
  replay_.steps.push_back(
      {unit.stage, unit.group, split ? OrderPart::kInput : OrderPart::kBackward});
  send_backward(unit, start + duration);
}

inline void ListScheduler::run_weight(const UnitAt& unit, std::int64_t start) {
  lane_[at(unit.place.lane)].left -= clock_.backward_weight(unit, start);
  replay_.steps.push_back({unit.stage, unit.group, OrderPart::kWeight});
}

// Runs for every operation: all that it calls is part of it.
[[gnu::flatten]] void ListScheduler::perform(const Turn& turn, std::int64_t start) {
  ++operations_;
  StageState& state = stage_[at(turn.stage)];
  const UnitAt unit(stages_, *graph_, turn.stage, next_group(state, turn.choice));
  if (turn.choice == Choice::kForward) {
    ++state.next_forward;
    run_forward(unit, start);
  } else if (turn.choice == Choice::kBackward) {
    ++state.next_backward;
    skip_without_backward(turn.stage);
    run_backward(unit, start);
  } else {
    ++state.next_weight;
    run_weight(unit, start);
  }
  lane_[at(unit.place.lane)].wants_forward = turn.choice != Choice::kForward;
  if (rule_.in_order) {
    advance(turn.stage);
  }
}

void ListScheduler::run_all_forwards(int group) {
  const int module = graph_->groups[at(group)].module;
  const int first = stages_.first_stage[at(module)];
  for (int stage = first; stage < first + stages_.num_stages(module); ++stage) {
    ++stage_[at(stage)].next_forward;
    run_forward({stages_, *graph_, stage, group}, clock_.lane(0).time);
  }
}

void ListScheduler::run_all_backwards(int group) {
  const GraphGroup& of = graph_->groups[at(group)];
  const int first = stages_.first_stage[at(of.module)];
  const int last = first + stages_.num_stages(of.module) - 1;
  for (int stage = last; stage >= first + of.first_backward; --stage) {
    ++stage_[at(stage)].next_backward;
    skip_without_backward(stage);
    run_backward({stages_, *graph_, stage, group}, clock_.lane(0).time);
  }
}

const std::vector<std::int64_t>& ListScheduler::replayed_bytes(const ReplicaGraph& graph,
                                                               const OrderReplay& replay) {
  graph_ = &graph;
  std::copy_n(graph.first_group.begin(), received_.size(), received_.begin());
  clock_.reset(stages_, graph);
  for (const OrderReplay::Step& step : replay.steps) {
    const UnitAt unit(stages_, graph, step.stage, step.group);
    if (step.part == OrderPart::kForward) {
      if (unit.place.module == stages_.llm && unit.place.stage == 0) {
        receive_features(step.group);
      }
      clock_.forward(unit, 0);
    } else if (step.part == OrderPart::kWeight) {
      clock_.backward_weight(unit, 0);
    } else {
      clock_.backward(unit, step.part == OrderPart::kInput, 0);
    }
  }
  result_.peak_bytes.resize(lane_.size());
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    result_.peak_bytes[lane] = clock_.lane(static_cast<int>(lane)).peak;
  }
  return result_.peak_bytes;
}

}  // namespace entrain
