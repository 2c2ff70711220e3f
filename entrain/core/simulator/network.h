// The links that carry a program's messages: lanes on the nodes of a cluster.
//
// Read first: Network. The replay turns it into Links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// A link carries one message at a time, at its full bandwidth; the next starts when it is free.
enum class LinkSharing : std::uint8_t {
  kChannel,  // every channel has a link of its own
  kLane,     // all channels that leave a lane share one link
  kNode,     // as kLane within a node; all channels that leave a node share one link
};

struct Network {
  // Node of every lane, >= 0; replicas may share nodes. Empty: all lanes are on one node, and its
  // link is StepCosts::link.
  std::vector<std::vector<int>> nodes;  // [replica][lane]
  LinkSpec intra_node;                  // between lanes of one node; used if nodes are given
  LinkSpec inter_node;                  // between lanes of two nodes
};

// Assigns lanes to the devices of a cluster in the order of ranks: replica by replica, lane by
// lane, each on as many consecutive devices as the largest tensor × context parallelism of its
// stages. A lane is on the node of its first device. A link of the cluster with neither latency nor
// bandwidth is unknown: within nodes it is `link`, between nodes that within nodes.
//
// Throws  InvalidInput when the plan needs more devices than the cluster has.
Network cluster_network(const ClusterSpec& cluster, const Plan& plan, const LinkSpec& link);

// Throws  InvalidInput when a network with nodes lacks lanes of the program, or has a node below 0
//         or above 999999.
void check_network(const Network& network, const Program& program);

// The link between two lanes of a replica.
// Requires  check_network().
const LinkSpec& link_between(
    const Network& network, const StepCosts& costs, int replica, int lane_a, int lane_b);

namespace simulation {

// The link of every channel, and when it is next free.
class Links {
 public:
  Links() = default;
  // Throws  InvalidInput as check_network() does.
  // Cost    O(channels).
  Links(const Program& program,
        const StepCosts& costs,
        const Network& network,
        LinkSharing sharing);

  struct Link {
    LinkSpec spec;
    int line = 0;         // channels with equal lines share their bandwidth
    bool shared = false;  // with other lanes: first come, first served
  };
  [[nodiscard]] const Link& of(int replica, int channel) const {
    return links_[static_cast<std::size_t>(first_[static_cast<std::size_t>(replica)] + channel)];
  }

  struct Passage {
    std::int64_t start = 0;
    std::int64_t arrival = 0;
  };
  // Reserves the link for a message that could start at `asked`.
  Passage pass(const Link& link, std::int64_t asked, std::int64_t bytes);

 private:
  std::vector<int> first_;          // [replica] into links_
  std::vector<Link> links_;         // of all channels of all replicas
  std::vector<std::int64_t> free_;  // [line]
};

}  // namespace simulation
}  // namespace entrain
