#include "entrain/core/simulator/network.h"

#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::TwoLanes;
using simulation::Links;
using std::chrono::nanoseconds;

constexpr LinkSpec kFast{nanoseconds{1}, 1e9};
constexpr LinkSpec kSlow{nanoseconds{50}, 1e8};

// Lanes: vision 0, vision 1, llm 0; the LLM on two devices.
Plan three_lanes(int replicas) {
  Plan plan = oracle::make_plain_case({2, 1}, 1).plan;
  plan.replicas = replicas;
  plan.modules[1].tensor_parallel = 2;
  return plan;
}

ClusterSpec cluster_of(int nodes, int devices) {
  ClusterSpec cluster;
  cluster.name = "test";
  cluster.num_nodes = nodes;
  cluster.devices_per_node = devices;
  cluster.intra_node = kFast;
  cluster.inter_node = kSlow;
  return cluster;
}

TEST(ClusterNetwork, DealsDevicesInTheOrderOfRanks) {
  // Devices 0 | 1 | 2 3, then 4 | 5 | 6 7 on nodes of three.
  const Network network = cluster_network(cluster_of(3, 3), three_lanes(2), {});
  EXPECT_EQ(network.nodes, (std::vector<std::vector<int>>{{0, 0, 0}, {1, 1, 2}}));
  EXPECT_EQ(network.intra_node.latency, kFast.latency);
  EXPECT_EQ(network.inter_node.latency, kSlow.latency);
  EXPECT_NO_THROW(cluster_network(cluster_of(2, 4), three_lanes(2), {}));
  EXPECT_THROW(cluster_network(cluster_of(1, 7), three_lanes(2), {}), InvalidInput);
}

TEST(ClusterNetwork, FallsBackWhereALinkIsUnknown) {
  ClusterSpec cluster = cluster_of(2, 4);
  cluster.inter_node = {};
  EXPECT_EQ(cluster_network(cluster, three_lanes(1), {}).inter_node.latency, kFast.latency);
  cluster.intra_node = {};
  const Network network = cluster_network(cluster, three_lanes(1), {nanoseconds{7}, 0});
  EXPECT_EQ(network.intra_node.latency.count(), 7);
  EXPECT_EQ(network.inter_node.latency.count(), 7);
}

TEST(LinkBetween, IsThatOfTheLanesNodes) {
  StepCosts costs;
  costs.link = {nanoseconds{9}, 0};
  const Network network = cluster_network(cluster_of(3, 3), three_lanes(2), {});
  EXPECT_EQ(link_between(network, costs, 1, 0, 1).latency, kFast.latency);
  EXPECT_EQ(link_between(network, costs, 1, 1, 2).latency, kSlow.latency);
  EXPECT_EQ(link_between({}, costs, 1, 1, 2).latency.count(), 9);
}

// Two replicas, lane 0 of both on node 0, lane 1 of both on node 1; a second channel from lane 0 to
// lane 1.
struct NetworkFixture {
  NetworkFixture() : lanes(1) {
    lanes.add_replica("", "");
    lanes.add_replica("", "");
    for (ReplicaProgram& replica : lanes.program.replicas) {
      replica.channels.push_back(replica.channels[0]);
    }
    network.nodes = {{0, 1}, {0, 1}};
    network.intra_node = kFast;
    network.inter_node = kSlow;
  }
  std::vector<int> lines(LinkSharing sharing) const {
    const Links links(lanes.program, lanes.costs, network, sharing);
    std::vector<int> result;
    for (const int replica : {0, 1}) {
      for (const int channel : {0, 1, 2}) {
        result.push_back(links.of(replica, channel).line);
      }
    }
    return result;
  }
  TwoLanes lanes;
  Network network;
};

TEST(Links, AreSharedAsTheOptionSays) {
  NetworkFixture fixture;
  EXPECT_EQ(fixture.lines(LinkSharing::kChannel), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(fixture.lines(LinkSharing::kLane), (std::vector<int>{0, 1, 0, 2, 3, 2}));
  EXPECT_EQ(fixture.lines(LinkSharing::kNode), (std::vector<int>{4, 5, 4, 4, 5, 4}));
  // On one node lanes have links of their own again.
  fixture.network.nodes = {{0, 0}, {0, 0}};
  EXPECT_EQ(fixture.lines(LinkSharing::kNode), fixture.lines(LinkSharing::kLane));
  fixture.network.nodes.clear();
  EXPECT_EQ(fixture.lines(LinkSharing::kNode), fixture.lines(LinkSharing::kLane));
}

TEST(Links, CarryOneMessageAtATime) {
  const NetworkFixture fixture;
  Links links(fixture.lanes.program, fixture.lanes.costs, fixture.network, LinkSharing::kNode);
  EXPECT_TRUE(links.of(0, 0).shared);
  Links::Passage passage = links.pass(links.of(0, 0), 100, 10);  // 50 + 100 ns
  EXPECT_EQ(passage.start, 100);
  EXPECT_EQ(passage.arrival, 250);
  passage = links.pass(links.of(1, 0), 120, 10);
  EXPECT_EQ(passage.start, 250);
  EXPECT_EQ(passage.arrival, 400);
  passage = links.pass(links.of(1, 1), 120, 10);  // from the other node
  EXPECT_EQ(passage.start, 120);
}

TEST(Links, RefuseNetworksOfOtherPrograms) {
  NetworkFixture fixture;
  fixture.network.nodes = {{0, 1}};
  EXPECT_THROW(fixture.lines(LinkSharing::kChannel), InvalidInput);
  fixture.network.nodes = {{0, 1}, {0}};
  EXPECT_THROW(fixture.lines(LinkSharing::kChannel), InvalidInput);
  fixture.network.nodes = {{0, 1}, {0, -1}};
  EXPECT_THROW(fixture.lines(LinkSharing::kChannel), InvalidInput);
}

}  // namespace
}  // namespace entrain
