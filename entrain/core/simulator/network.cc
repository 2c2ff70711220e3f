#include "entrain/core/simulator/network.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr int kLastNode = 999'999;

bool is_known(const LinkSpec& link) {
  return link.latency.count() > 0 || link.bytes_per_second > 0;
}

int devices_of(const Plan& plan, const std::vector<StageRef>& lane) {
  int devices = 1;
  for (const StageRef& ref : lane) {
    const ModulePlan& module = plan.modules[at(ref.module)];
    devices = std::max(devices, module.tensor_parallel * module.context_parallel);
  }
  return devices;
}

}  // namespace

void check_network(const Network& network, const Program& program) {
  if (network.nodes.empty()) {
    return;
  }
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    if (replica >= network.nodes.size() || network.nodes[replica].size() < program.lanes.size()) {
      throw InvalidInput(fmt::format(
          "the network lacks lanes of replica {}: {} needed", replica, program.lanes.size()));
    }
    for (const int node : network.nodes[replica]) {
      if (node < 0 || node > kLastNode) {
        throw InvalidInput(
            fmt::format("the network puts a lane of replica {} on node {}; allowed: 0 to {}",
                        replica,
                        node,
                        kLastNode));
      }
    }
  }
}

Network cluster_network(const ClusterSpec& cluster, const Plan& plan, const LinkSpec& link) {
  Network network;
  network.intra_node = is_known(cluster.intra_node) ? cluster.intra_node : link;
  network.inter_node = is_known(cluster.inter_node) ? cluster.inter_node : network.intra_node;
  const std::int64_t num_devices =
      std::int64_t{cluster.num_nodes} * std::int64_t{cluster.devices_per_node};
  std::int64_t device = 0;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<int>& nodes = network.nodes.emplace_back();
    for (const std::vector<StageRef>& lane : plan.lanes) {
      nodes.push_back(static_cast<int>(device / cluster.devices_per_node));
      device += devices_of(plan, lane);
    }
  }
  if (device > num_devices) {
    throw InvalidInput(fmt::format("the plan needs {} devices; cluster '{}' has {} nodes of {}",
                                   device,
                                   cluster.name,
                                   cluster.num_nodes,
                                   cluster.devices_per_node));
  }
  return network;
}

const LinkSpec& link_between(
    const Network& network, const StepCosts& costs, int replica, int lane_a, int lane_b) {
  if (network.nodes.empty()) {
    return costs.link;
  }
  const std::vector<int>& nodes = network.nodes[at(replica)];
  return nodes[at(lane_a)] == nodes[at(lane_b)] ? network.intra_node : network.inter_node;
}

namespace simulation {

Links::Links(const Program& program,
             const StepCosts& costs,
             const Network& network,
             LinkSharing sharing) {
  const bool one_node = network.nodes.empty();
  check_network(network, program);
  // Lines: of lanes, then of nodes, unless every channel has its own.
  const int num_lanes = program.num_lanes();
  const int first_node = static_cast<int>(program.replicas.size()) * num_lanes;
  int num_lines = 0;
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    first_.push_back(static_cast<int>(links_.size()));
    for (const Channel& channel : program.replicas[replica].channels) {
      const int index = static_cast<int>(replica);
      Link link;
      link.spec = link_between(network, costs, index, channel.source_lane, channel.target_lane);
      link.line = static_cast<int>(links_.size());
      if (sharing != LinkSharing::kChannel) {
        link.line = index * num_lanes + channel.source_lane;
      }
      if (sharing == LinkSharing::kNode && !one_node) {
        const std::vector<int>& nodes = network.nodes[replica];
        const int node = nodes[at(channel.source_lane)];
        link.shared = node != nodes[at(channel.target_lane)];
        link.line = link.shared ? first_node + node : link.line;
      }
      num_lines = std::max(num_lines, link.line + 1);
      links_.push_back(link);
    }
  }
  free_.assign(at(num_lines), 0);
}

Links::Passage Links::pass(const Link& link, std::int64_t asked, std::int64_t bytes) {
  std::int64_t& free = free_[at(link.line)];
  Passage passage;
  passage.start = std::max(asked, free);
  passage.arrival = passage.start + transfer_time(link.spec, bytes).count();
  free = passage.arrival;
  return passage;
}

}  // namespace simulation
}  // namespace entrain
