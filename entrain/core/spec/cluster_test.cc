#include "entrain/core/spec/cluster.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

constexpr const char* kClusterToml = R"(
name = "two nodes"
nodes = 2
devices_per_node = 8
device = "a40"
memory_gib = 44.5

[intra_node]
latency_us = 3.5
gigabytes_per_second = 25

[inter_node]
latency_us = 12
gigabytes_per_second = 12.5
)";

std::string cluster_message_after(const std::string& change) {
  return error_of<InvalidInput>([&] {
    Json document = parse_toml(kClusterToml, "c.toml");
    set_by_path(document, change);
    cluster_from_json(document, "c.toml");
  });
}

TEST(ReadCluster, ConvertsToTheUnitsInMemory) {
  const auto path = std::filesystem::temp_directory_path() / "entrain-cluster-test.toml";
  write_file(path, kClusterToml);
  const ClusterSpec cluster = read_cluster(path);
  std::filesystem::remove(path);
  EXPECT_EQ(cluster.name, "two nodes");
  EXPECT_EQ(cluster.num_nodes, 2);
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_EQ(cluster.device, "a40");
  EXPECT_EQ(cluster.memory_bytes, 47'781'511'168);
  EXPECT_EQ(cluster.intra_node.latency, std::chrono::nanoseconds(3500));
  EXPECT_EQ(cluster.intra_node.bytes_per_second, 25e9);
  EXPECT_EQ(cluster.inter_node.latency, std::chrono::microseconds(12));
  EXPECT_EQ(cluster.inter_node.bytes_per_second, 12.5e9);
}

TEST(ReadCluster, HasDefaultsForAllButTheName) {
  const ClusterSpec cluster = cluster_from_json(parse_toml("name = \"here\"", "c"), "c");
  EXPECT_EQ(cluster.num_nodes, 1);
  EXPECT_EQ(cluster.devices_per_node, 1);
  EXPECT_EQ(cluster.device, "cpu");
  EXPECT_EQ(cluster.memory_bytes, 0);
  EXPECT_EQ(cluster.intra_node.latency.count(), 0);
  EXPECT_EQ(error_of<InvalidInput>([] { cluster_from_json(Json::object(), "c.toml"); }),
            "c.toml: name: missing");
}

TEST(ReadCluster, RefusesUnknownKeysAndImpossibleValues) {
  EXPECT_EQ(cluster_message_after("node=3"), "c.toml: node: unknown key, did you mean 'nodes'?");
  EXPECT_EQ(
      cluster_message_after("intra_node.latency=3").rfind("c.toml: intra_node.latency: unknown", 0),
      0U);
  EXPECT_EQ(cluster_message_after("nodes=0"), "c.toml: nodes: 0 given; allowed: 1 to 1000000");
  EXPECT_EQ(cluster_message_after("devices_per_node=-1"),
            "c.toml: devices_per_node: -1 given; allowed: 1 to 1000000");
  EXPECT_EQ(cluster_message_after("memory_gib=-1"),
            "c.toml: memory_gib: -1 given; allowed: 0 to 1000000");
  EXPECT_EQ(cluster_message_after("inter_node.latency_us=-0.5")
                .rfind("c.toml: inter_node.latency_us: -0.5 given", 0),
            0U);
  EXPECT_EQ(cluster_message_after("inter_node.gigabytes_per_second=nan")
                .rfind("c.toml: inter_node.gigabytes_per_second: nan given", 0),
            0U);
  EXPECT_EQ(cluster_message_after("device=\"\""), "c.toml: device: the name is empty");
}

TEST(ValidateCluster, RefusesImpossibleLinks) {
  ClusterSpec cluster;
  cluster.intra_node.latency = std::chrono::nanoseconds(-1);
  EXPECT_THROW(validate(cluster, "c"), InvalidInput);
  cluster = {};
  cluster.inter_node.bytes_per_second = -1;
  EXPECT_THROW(validate(cluster, "c"), InvalidInput);
  cluster = {};
  cluster.memory_bytes = -1;
  EXPECT_THROW(validate(cluster, "c"), InvalidInput);
  EXPECT_NO_THROW(validate(ClusterSpec{}, "c"));
}

}  // namespace
}  // namespace entrain
