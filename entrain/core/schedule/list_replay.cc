// What a run of the list scheduler waited for, from the order of its operations.
#include <algorithm>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/list_schedule.h"

namespace entrain {
namespace {

// Takes operations in an order in which they can run.
class ReplayBuilder {
 public:
  ReplayBuilder(const StageGraph& stages, const ReplicaGraph& graph, OrderReplay& replay)
      : stages_(stages),
        graph_(graph),
        replay_(replay),
        lane_(stages.lanes.size()),
        link_(2 * stages.stages.size()),
        forward_(at(graph.num_units)),
        backward_(at(graph.num_units)),
        missing_(at(graph.first_llm_group())) {
    replay_.nodes.assign(1, {});
    replay_.nodes.reserve(2 * replay_.steps.size());
    for (std::size_t group = 0; group < missing_.size(); ++group) {
      missing_[group] = static_cast<int>(graph.served_by(graph.groups[group]).size());
    }
  }

  void add(const OrderReplay::Step& step) {
    const StageGraph::Stage& place = stages_.stages[at(step.stage)];
    const GraphGroup& group = graph_.group(step.group);
    const std::size_t unit = at(group.first_unit + place.stage);
    const bool forward = step.part == OrderPart::kForward;
    const bool weight = step.part == OrderPart::kWeight;
    int& node = lane_[at(place.lane)];
    node = replay_.add({node,
                        forward  ? forward_[unit]
                        : weight ? 0
                                 : backward_[unit],
                        {graph_.cost_index(group, step.stage), step.part}});
    if (forward) {
      send_forward(step, place, node);
    } else if (!weight) {
      send_backward(step, place, node);
    }
  }

  // Of the last operation.
  [[nodiscard]] int node_of(std::size_t lane) const { return lane_[lane]; }

 private:
  int transfer(int stage, bool gradient, int start, const GraphGroup& group) {
    if (!stages_.stages[at(stage)].crosses) {
      return start;
    }
    int& node = link_[2 * at(stage) + (gradient ? 1 : 0)];
    node = replay_.add({node, start, {graph_.cost_index(group, stage), OrderPart::kTransfer}});
    return node;
  }

  void send_forward(const OrderReplay::Step& step, const StageGraph::Stage& place, int node) {
    const GraphGroup& of = graph_.group(step.group);
    const int unit = of.first_unit + place.stage;
    if (place.last && place.module == stages_.llm) {
      backward_[at(unit)] = node;
      return;
    }
    const int arrival = transfer(step.stage, false, node, of);
    if (!place.last) {
      forward_[at(unit + 1)] = arrival;
      return;
    }
    for (const int taker : graph_.served_by(of)) {  // which waits for all of its sources
      int& input = forward_[at(graph_.unit(taker, 0))];
      input = input == 0 ? arrival : replay_.add({input, arrival, {}});
    }
  }

  void send_backward(const OrderReplay::Step& step, const StageGraph::Stage& place, int node) {
    const GraphGroup& of = graph_.group(step.group);
    if (place.stage > of.first_backward) {
      backward_[at(of.first_unit + place.stage - 1)] = transfer(step.stage - 1, true, node, of);
    }
    if (place.stage > 0 || place.module != stages_.llm) {
      return;
    }
    for (const int source : graph_.sources_of(step.group)) {
      const GraphGroup& encoder = graph_.group(source);
      const int last = stages_.num_stages(encoder.module) - 1;
      if (--missing_[at(source)] == 0 && encoder.first_backward <= last) {
        backward_[at(encoder.first_unit + last)] =
            transfer(stages_.number(encoder.module, last), true, node, encoder);
      }
    }
  }

  const StageGraph& stages_;
  const ReplicaGraph& graph_;
  OrderReplay& replay_;
  // Nodes, 0 for none:
  std::vector<int> lane_;      // [lane] last
  std::vector<int> link_;      // [2 × stage number + gradient] last
  std::vector<int> forward_;   // [unit] input
  std::vector<int> backward_;  // [unit] input
  std::vector<int> missing_;   // [encoder group] LLM groups still to run backward
};

}  // namespace

const OrderReplay& ListScheduler::replay() {
  link(*graph_, replay_);
  return replay_;
}

void ListScheduler::link(const ReplicaGraph& graph, OrderReplay& replay) const {
  if (!replay.nodes.empty()) {
    return;
  }
  ReplayBuilder builder(stages_, graph, replay);
  for (const OrderReplay::Step& step : replay.steps) {
    builder.add(step);
  }
  replay.ends.clear();
  for (std::size_t lane = 0; lane < lane_.size(); ++lane) {
    replay.ends.push_back({builder.node_of(lane), lane_end_[lane]});
  }
}

}  // namespace entrain
