// The orders of a run, replayed with other costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "entrain/core/graph/step_graph.h"

namespace entrain {

// Operations and messages of a replica, each of which begins when two others have ended: the one
// before on its lane or link, and its input.
struct OrderReplay {
  enum class Part : std::uint8_t { kForward, kInput, kBackward, kWeight, kTransfer, kNothing };
  struct Node {
    int before = 0;  // nodes; node 0 is the step's start
    int input = 0;
    int cost = 0;  // ReplicaGraph::cost_index()
    Part part = Part::kNothing;
  };
  struct End {
    int node = 0;               // the lane's last
    std::int64_t after_ns = 0;  // the reduction on the lane
  };
  struct Step {
    int stage = 0;  // number
    int group = 0;
    Part part = Part::kNothing;
  };
  std::vector<Node> nodes;
  std::vector<End> ends;    // [lane]
  std::vector<Step> steps;  // operations, every lane's in order; of fixed orders alone

  int add(const Node& node) {
    nodes.push_back(node);
    return static_cast<int>(nodes.size()) - 1;
  }

  // The latest end, in nanoseconds, with the costs of a graph whose shape() is that of the run's;
  // `times` is scratch.
  // Cost  O(nodes), some nanoseconds each.
  [[nodiscard]] std::int64_t length(const ReplicaGraph& graph,
                                    std::vector<std::int64_t>& times) const {
    times.resize(nodes.size());
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      times[i] = std::max(times[static_cast<std::size_t>(node.before)],
                          times[static_cast<std::size_t>(node.input)]) +
                 duration(graph.costs[static_cast<std::size_t>(node.cost)], node.part);
    }
    std::int64_t latest = 0;
    for (const End& end : ends) {
      latest = std::max(latest, times[static_cast<std::size_t>(end.node)] + end.after_ns);
    }
    return latest;
  }

  // Calls visit(cost, part) for nodes that follow each other without a wait up to the latest end,
  // the last one first. `times` is length()'s with the same graph.
  template <class Visit>
  void visit_critical_path(const ReplicaGraph& graph,
                           const std::vector<std::int64_t>& times,
                           Visit visit) const {
    const auto end = [&](const End& of) {
      return times[static_cast<std::size_t>(of.node)] + of.after_ns;
    };
    const auto last = std::max_element(
        ends.begin(), ends.end(), [&](const End& a, const End& b) { return end(a) < end(b); });
    for (int number = last->node; number > 0;) {
      const Node& node = nodes[static_cast<std::size_t>(number)];
      visit(node.cost, node.part);
      const std::int64_t start =
          times[static_cast<std::size_t>(number)] -
          duration(graph.costs[static_cast<std::size_t>(node.cost)], node.part);
      number = times[static_cast<std::size_t>(node.before)] == start ? node.before : node.input;
    }
  }

 private:
  // Without branches, which no processor would foresee.
  static std::int64_t duration(const GraphUnit& unit, Part part) {
    struct Sum {
      std::int64_t GraphUnit::*first;
      std::int64_t GraphUnit::*second;
      std::int64_t masks[2];
    };
    constexpr std::int64_t kAll = -1;
    static constexpr Sum kSums[] = {
        {&GraphUnit::forward, &GraphUnit::forward, {kAll, 0}},
        {&GraphUnit::backward_input, &GraphUnit::backward_input, {kAll, 0}},
        {&GraphUnit::backward_input, &GraphUnit::backward_weight, {kAll, kAll}},
        {&GraphUnit::backward_weight, &GraphUnit::split, {kAll, kAll}},
        {&GraphUnit::transfer_ns, &GraphUnit::transfer_ns, {kAll, 0}},
        {&GraphUnit::forward, &GraphUnit::forward, {0, 0}},
    };
    const Sum& of = kSums[static_cast<std::size_t>(part)];
    return (unit.*of.first & of.masks[0]) + (unit.*of.second & of.masks[1]);
  }
};

}  // namespace entrain
