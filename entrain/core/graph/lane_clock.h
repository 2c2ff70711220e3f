// Time and activation bytes of a replica's lanes as their operations begin and end: the accounting
// shared by the simulator, the list scheduler and the memory of a program.
//
// Read first: ReplicaClock. Bytes depend on the order of operations only, never on their times. The
// rules for held bytes are those of simulate() (simulator.h, Memory).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "entrain/core/graph/step_graph.h"

namespace entrain {

struct LaneClock {
  std::int64_t time = 0;    // finish of the lane's last operation, nanoseconds
  std::int64_t held = 0;    // bytes after it
  std::int64_t during = 0;  // bytes while it ran, including those it frees
  std::int64_t peak = 0;

  void hold(std::int64_t bytes) {
    held += bytes;
    during = held;
    peak = std::max(peak, held);
  }
  // Bytes of a message received while the previous operation still runs.
  void hold_ahead(std::int64_t bytes) {
    peak = std::max(peak, during + bytes);
    held += bytes;
  }
};

// A group on a stage, and what is known of both.
struct UnitAt {
  UnitAt(const StageGraph& stages, const ReplicaGraph& graph, int stage_number, int group_number)
      : stage(stage_number),
        group(group_number),
        place(stages.stages[static_cast<std::size_t>(stage_number)]),
        of(graph.group(group_number)),
        cost(graph.cost(of, stage_number)) {}

  int stage;
  int group;
  const StageGraph::Stage& place;
  const GraphGroup& of;
  const GraphUnit& cost;

  [[nodiscard]] int number() const { return of.first_unit + place.stage; }
  [[nodiscard]] bool takes_backward() const { return place.stage >= of.first_backward; }
};

// `stage` is a stage number, `group` a group's number, `start` nanoseconds since the step's start.
class ReplicaClock {
 public:
  ReplicaClock() = default;
  ReplicaClock(const StageGraph& stages, const ReplicaGraph& graph) { reset(stages, graph); }

  // Called before the step. Both graphs must outlive the clock's use. Without `bytes` all of them
  // stay 0.
  void reset(const StageGraph& stages, const ReplicaGraph& graph, bool bytes = true) {
    stages_ = &stages;
    graph_ = &graph;
    bytes_ = bytes;
    lanes_.assign(stages.lanes.size(), {});
    takers_left_.resize(static_cast<std::size_t>(graph.first_llm_group()));
    for (std::size_t group = 0; group < takers_left_.size(); ++group) {
      takers_left_[group] = graph.groups[group].served_end - graph.groups[group].served_begin;
    }
  }

  [[nodiscard]] LaneClock& lane(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] const LaneClock& lane(int lane) const {
    return lanes_[static_cast<std::size_t>(lane)];
  }

  // Each runs one operation on the stage's lane and returns its duration in nanoseconds.
  std::int64_t forward(const UnitAt& unit, std::int64_t start);
  // Both gradients, or (`half`) only the input's.
  std::int64_t backward(const UnitAt& unit, bool half, std::int64_t start);
  std::int64_t backward_weight(const UnitAt& unit, std::int64_t start);
  [[nodiscard]] UnitAt unit(int stage, int group) const {
    return {*stages_, *graph_, stage, group};
  }
  // Whether the channel's messages take bytes where they arrive: encoder outputs on the LLM's first
  // lane alone do.
  [[nodiscard]] bool carries_features(const Channel& channel) const {
    return !channel.gradient && channel.target_lane == stages_->llm_first_lane &&
           stages_->feeds_llm(stages_->of(channel.producer.module, channel.producer.stage));
  }
  // A message of `group` arrives; the group matters only if the channel carries features.
  void receive(const Channel& channel, int group) {
    lane(channel.target_lane).hold(carries_features(channel) ? features_of(group) : 0);
  }
  // Bytes of an encoder group's output, on the LLM's first lane.
  [[nodiscard]] std::int64_t features_of(int group) const {
    const GraphGroup& of = graph_->group(group);
    return graph_->cost(of, stages_->first_stage[static_cast<std::size_t>(of.module) + 1] - 1)
        .output_bytes;
  }
  // Bytes of keys and values, on the unit's stage, of groups whose samples end with its group and
  // that take part in backward there, or do not.
  [[nodiscard]] std::int64_t ended_bytes(const UnitAt& of, bool backward) const {
    std::int64_t bytes = 0;
    for (const int group : graph_->ended_of(of.group)) {
      const UnitAt ended = unit(of.stage, group);
      if (ended.takes_backward() == backward) {
        bytes += ended.cost.key_value_bytes;
      }
    }
    return bytes;
  }

 private:
  // Frees the encoder outputs whose last LLM group has just finished.
  void release_features(int llm_group) {
    for (const int source : graph_->sources_of(llm_group)) {
      if (--takers_left_[static_cast<std::size_t>(source)] == 0) {
        lane(stages_->llm_first_lane).held -= features_of(source);
      }
    }
  }

  const StageGraph* stages_ = nullptr;
  const ReplicaGraph* graph_ = nullptr;
  bool bytes_ = true;
  std::vector<LaneClock> lanes_;
  std::vector<int> takers_left_;  // [encoder group] LLM groups that still need its output
};

inline std::int64_t ReplicaClock::forward(const UnitAt& unit, std::int64_t start) {
  const StageGraph::Stage& place = unit.place;
  const GraphUnit& cost = unit.cost;
  LaneClock& clock = lane(place.lane);
  clock.time = start + cost.forward;
  if (!bytes_) {
    return cost.forward;
  }
  const bool leaves_features = stages_->feeds_llm(place) && place.lane == stages_->llm_first_lane;
  clock.hold(cost.activation_bytes + (leaves_features ? cost.output_bytes : 0) +
             (unit.takes_backward() ? 0 : cost.key_value_bytes));
  clock.held -= ended_bytes(unit, false);
  if (!unit.takes_backward()) {
    clock.held -= cost.activation_bytes;
    if (place.module == stages_->llm && place.stage == 0) {
      release_features(unit.group);
    }
  }
  return cost.forward;
}

inline std::int64_t ReplicaClock::backward(const UnitAt& unit, bool half, std::int64_t start) {
  const GraphUnit& cost = unit.cost;
  const std::int64_t duration = half ? cost.backward_input : cost.backward();
  LaneClock& clock = lane(unit.place.lane);
  clock.time = start + duration;
  if (!bytes_) {
    return duration;
  }
  const std::int64_t recomputed = half ? cost.recompute.all : cost.recompute.largest;
  clock.hold(ended_bytes(unit, true) + recomputed);
  clock.held -= cost.key_value_bytes;  // its own gradients
  if (!half) {
    clock.held -= cost.activation_bytes + recomputed;
  }
  if (unit.place.module == stages_->llm && unit.place.stage == 0) {
    release_features(unit.group);
  }
  return duration;
}

inline std::int64_t ReplicaClock::backward_weight(const UnitAt& unit, std::int64_t start) {
  LaneClock& clock = lane(unit.place.lane);
  clock.time = start + unit.cost.weight_half();
  if (bytes_) {
    clock.during = clock.held;
    clock.held -= unit.cost.activation_bytes + unit.cost.recompute.all;
  }
  return unit.cost.weight_half();
}

}  // namespace entrain
