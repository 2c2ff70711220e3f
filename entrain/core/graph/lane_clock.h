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

// `stage` is a stage number, `group` a group's number, `start` nanoseconds since the step's start.
class ReplicaClock {
 public:
  ReplicaClock() = default;
  ReplicaClock(const StageGraph& stages, const ReplicaGraph& graph) { reset(stages, graph); }

  // Called before the step. Both graphs must outlive the clock's use.
  void reset(const StageGraph& stages, const ReplicaGraph& graph) {
    stages_ = &stages;
    graph_ = &graph;
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
  std::int64_t forward(int stage, int group, std::int64_t start);
  // Both gradients, or (`half`) only the input's.
  std::int64_t backward(int stage, int group, bool half, std::int64_t start);
  std::int64_t backward_weight(int stage, int group, std::int64_t start);
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
  // Bytes of keys and values, on a stage, of groups whose samples end with `group` and that take
  // part in backward there, or do not.
  [[nodiscard]] std::int64_t ended_bytes(int stage, int group, bool backward) const {
    std::int64_t bytes = 0;
    for (const int number : graph_->ended_of(group)) {
      const GraphGroup& ended = graph_->group(number);
      const int index = stages_->stages[static_cast<std::size_t>(stage)].stage;
      if ((index >= ended.first_backward) == backward) {
        bytes += graph_->cost(ended, stage).key_value_bytes;
      }
    }
    return bytes;
  }

 private:
  [[nodiscard]] const StageGraph::Stage& place(int stage) const {
    return stages_->stages[static_cast<std::size_t>(stage)];
  }
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
  std::vector<LaneClock> lanes_;
  std::vector<int> takers_left_;  // [encoder group] LLM groups that still need its output
};

inline std::int64_t ReplicaClock::forward(int stage, int number, std::int64_t start) {
  const StageGraph::Stage& of = place(stage);
  const GraphGroup& group = graph_->group(number);
  const GraphUnit& unit = graph_->cost(group, stage);
  const bool takes_backward = of.stage >= group.first_backward;
  const bool leaves_features = stages_->feeds_llm(of) && of.lane == stages_->llm_first_lane;
  LaneClock& clock = lane(of.lane);
  clock.time = start + unit.forward;
  clock.hold(unit.activation_bytes + (leaves_features ? unit.output_bytes : 0) +
             (takes_backward ? 0 : unit.key_value_bytes));
  clock.held -= ended_bytes(stage, number, false);
  if (!takes_backward) {
    clock.held -= unit.activation_bytes;
    if (of.module == stages_->llm && of.stage == 0) {
      release_features(number);
    }
  }
  return unit.forward;
}

inline std::int64_t ReplicaClock::backward(int stage, int number, bool half, std::int64_t start) {
  const StageGraph::Stage& of = place(stage);
  const GraphUnit& unit = graph_->cost(graph_->group(number), stage);
  const std::int64_t recomputed = half ? unit.recompute.all : unit.recompute.largest;
  const std::int64_t duration = half ? unit.backward_input : unit.backward();
  LaneClock& clock = lane(of.lane);
  clock.time = start + duration;
  clock.hold(ended_bytes(stage, number, true) + recomputed);
  clock.held -= unit.key_value_bytes;  // its own gradients
  if (!half) {
    clock.held -= unit.activation_bytes + recomputed;
  }
  if (of.module == stages_->llm && of.stage == 0) {
    release_features(number);
  }
  return duration;
}

inline std::int64_t ReplicaClock::backward_weight(int stage, int number, std::int64_t start) {
  const GraphUnit& unit = graph_->cost(graph_->group(number), stage);
  LaneClock& clock = lane(place(stage).lane);
  clock.time = start + unit.weight_half();
  clock.during = clock.held;
  clock.held -= unit.activation_bytes + unit.recompute.all;
  return unit.weight_half();
}

}  // namespace entrain
