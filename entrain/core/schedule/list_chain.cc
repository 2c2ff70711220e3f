// Which operations and messages the list scheduler's last run was as long as.
#include <algorithm>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {

CriticalChain ListScheduler::critical_chain() const {
  CriticalChain chain;
  int lane = late_lane_;
  Ran ran;  // that waits for what is looked for
  if (lane >= 0) {
    const int stage = stages_.lanes[at(lane)].front();
    const StageState& of = stage_[at(stage)];
    add_left(lane, chain);
    ran = {of.next, false, stage, next_group(of, of.next), lane_[at(lane)].decision.time, 0};
  } else {
    const auto end = [&](int of) { return clock_.lane(of).time + lane_end_[at(of)]; };
    lane = 0;
    for (int other = 1; other < static_cast<int>(lane_.size()); ++other) {
      lane = end(other) > end(lane) ? other : lane;
    }
    if (ran_[at(lane)].empty()) {
      return chain;
    }
    ran = ran_[at(lane)].back();
    add_term(ran, chain);
  }
  chain.end_ns = lane_end_[at(lane)];
  std::size_t position = late_lane_ >= 0 ? ran_[at(lane)].size() : ran_[at(lane)].size() - 1;
  while (ran.start > 0) {
    const std::vector<Ran>& of_lane = ran_[at(stages_.stages[at(ran.stage)].lane)];
    if (position > 0 && of_lane[position - 1].finish == ran.start) {
      --position;
      ran = of_lane[position];
    } else {
      const Ran& from = sent_at(arrived(ran), ran.start, chain);
      const UnitState& unit =
          unit_[at(graph_->unit(from.group, stages_.stages[at(from.stage)].stage))];
      position = at(from.choice == Choice::kForward ? unit.forward : unit.backward);
      ran = from;
    }
    add_term(ran, chain);
  }
  return chain;
}

// What a lane of one stage has not run.
void ListScheduler::add_left(int lane, CriticalChain& chain) const {
  const int stage = stages_.lanes[at(lane)].front();
  const StageState& of = stage_[at(stage)];
  for (int group = of.next_forward; group < of.end; ++group) {
    add_term({Choice::kForward, false, stage, group, 0, 0}, chain);
  }
  for (int i = of.next_backward; i < of.end; ++i) {
    const int group = graph_->backward_order[at(i)];
    if (graph_->group(group).first_backward <= stages_.stages[at(stage)].stage) {
      add_term({Choice::kBackward, of.halves, stage, group, 0, 0}, chain);
      if (of.halves) {
        add_term({Choice::kWeight, false, stage, group, 0, 0}, chain);
      }
    }
  }
  for (std::size_t i = at(of.next_weight); i < of.weights.size(); ++i) {
    add_term({Choice::kWeight, false, stage, of.weights[i], 0, 0}, chain);
  }
}

void ListScheduler::add_term(const Ran& ran, CriticalChain& chain) const {
  const int cost = graph_->cost_index(graph_->group(ran.group), ran.stage);
  if (ran.choice == Choice::kForward) {
    chain.terms.push_back({cost, &GraphUnit::forward});
    return;
  }
  if (ran.choice == Choice::kBackward) {
    chain.terms.push_back({cost, &GraphUnit::backward_input});
  }
  if (!ran.split) {
    chain.terms.push_back({cost, &GraphUnit::backward_weight});
  }
  if (ran.choice == Choice::kWeight) {
    chain.terms.push_back({cost, &GraphUnit::split});
  }
}

// The message at whose arrival the operation started.
ListScheduler::Message ListScheduler::arrived(const Ran& ran) const {
  if (ran.choice == Choice::kBackward) {
    return {ran.stage, ran.group, true};
  }
  if (stages_.stages[at(ran.stage)].stage > 0) {
    return {ran.stage - 1, ran.group, false};
  }
  for (const int source : graph_->sources_of(ran.group)) {
    const int module = graph_->group(source).module;
    const int last = stages_.num_stages(module) - 1;
    if (unit_[at(graph_->unit(source, last))].sent == ran.start) {
      return {stages_.number(module, last), source, false};
    }
  }
  throw InternalError("an operation started for no reason");
}

// The operation after which the message was sent.
const ListScheduler::Ran& ListScheduler::sender(const Message& message) const {
  const StageGraph::Stage& of = stages_.stages[at(message.stage)];
  const GraphGroup& group = graph_->group(message.group);
  if (!message.gradient) {
    return ran_[at(of.lane)][at(unit_[at(group.first_unit + of.stage)].forward)];
  }
  if (!stages_.feeds_llm(of)) {
    const StageGraph::Stage& next = stages_.stages[at(message.stage + 1)];
    return ran_[at(next.lane)][at(unit_[at(group.first_unit + next.stage)].backward)];
  }
  const std::vector<Ran>& of_lane = ran_[at(stages_.llm_first_lane)];
  const Ran* last = nullptr;
  for (const int taker : graph_->served_by(group)) {
    const Ran& backward = of_lane[at(unit_[at(graph_->group(taker).first_unit)].backward)];
    last = last == nullptr || backward.finish > last->finish ? &backward : last;
  }
  return *last;
}

// Messages may have waited for those before on their link. Adds what they took.
const ListScheduler::Ran& ListScheduler::sent_at(Message message,
                                                 std::int64_t arrival,
                                                 CriticalChain& chain) const {
  const StageGraph::Stage& edge = stages_.stages[at(message.stage)];
  while (true) {
    const GraphGroup& group = graph_->group(message.group);
    if (edge.crosses) {
      const int cost = graph_->cost_index(group, message.stage);
      chain.terms.push_back({cost, &GraphUnit::transfer_ns});
      arrival -= graph_->costs[at(cost)].transfer_ns;
    }
    const Ran& from = sender(message);
    if (from.finish == arrival) {
      return from;
    }
    ENTRAIN_INVARIANT(from.finish < arrival, "a message was sent before it was made");
    if (!message.gradient) {
      --message.group;
      continue;
    }
    const auto first = graph_->backward_order.begin() + graph_->first_group[at(group.module)];
    auto before = std::find(first, graph_->backward_order.end(), message.group);
    do {
      --before;
    } while (graph_->group(*before).first_backward > edge.stage);
    message.group = *before;
  }
}

}  // namespace entrain
