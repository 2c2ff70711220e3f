// The orders of a run, replayed with other costs, and what its time is the sum of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "entrain/core/graph/step_graph.h"

namespace entrain {

enum class OrderPart : std::uint8_t { kForward, kInput, kBackward, kWeight, kTransfer, kNothing };

// An operation or a message.
struct OrderTerm {
  int cost = 0;  // ReplicaGraph::cost_index()
  OrderPart part = OrderPart::kNothing;

  // Nanoseconds. Without branches, which no processor would foresee.
  [[nodiscard]] std::int64_t duration(const ReplicaGraph& graph) const {
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
    const GraphUnit& unit = graph.costs[static_cast<std::size_t>(cost)];
    const Sum& of = kSums[static_cast<std::size_t>(part)];
    return (unit.*of.first & of.masks[0]) + (unit.*of.second & of.masks[1]);
  }
};

// Terms each of which waits for another one. Whatever they cost, a replica takes at least as long
// while its lanes run the same orders.
struct CriticalChain {
  std::vector<OrderTerm> terms;
  std::int64_t end_ns = 0;  // after the last: the reduction on its lane
};

// Terms of a replica, each of which begins when two others have ended: the one before on its lane
// or link, and its input.
struct OrderReplay {
  struct Node {
    int before = 0;  // nodes; node 0 is the step's start
    int input = 0;
    OrderTerm of;
  };
  struct End {
    int node = 0;               // the lane's last
    std::int64_t after_ns = 0;  // the reduction on the lane
  };
  struct Step {
    int stage = 0;  // number
    int group = 0;
    OrderPart part = OrderPart::kNothing;
  };
  std::vector<Node> nodes;
  std::vector<End> ends;    // [lane]
  std::vector<Step> steps;  // operations, in an order in which they can run

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
    times[0] = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      times[i] = std::max(times[static_cast<std::size_t>(node.before)],
                          times[static_cast<std::size_t>(node.input)]) +
                 node.of.duration(graph);
    }
    std::int64_t latest = 0;
    for (const End& end : ends) {
      latest = std::max(latest, times[static_cast<std::size_t>(end.node)] + end.after_ns);
    }
    return latest;
  }

  // The way to the latest end. `times` is length()'s with the same graph.
  // Cost  O(terms).
  [[nodiscard]] CriticalChain chain(const ReplicaGraph& graph,
                                    const std::vector<std::int64_t>& times) const {
    const auto end = [&](const End& of) {
      return times[static_cast<std::size_t>(of.node)] + of.after_ns;
    };
    const End& last = *std::max_element(
        ends.begin(), ends.end(), [&](const End& a, const End& b) { return end(a) < end(b); });
    CriticalChain chain{{}, last.after_ns};
    for (int number = last.node; number > 0;) {
      const Node& node = nodes[static_cast<std::size_t>(number)];
      chain.terms.push_back(node.of);
      const std::int64_t start = times[static_cast<std::size_t>(number)] - node.of.duration(graph);
      number = times[static_cast<std::size_t>(node.before)] == start ? node.before : node.input;
    }
    return chain;
  }
};

}  // namespace entrain
