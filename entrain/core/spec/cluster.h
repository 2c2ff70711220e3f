// The devices and links a plan is made for.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

struct LinkSpec {
  std::chrono::nanoseconds latency{0};  // per message, >= 0
  double bytes_per_second = 0;          // 0 = infinite
};

struct ClusterSpec {
  std::string name;
  int num_nodes = 1;
  int devices_per_node = 1;
  std::string device = "cpu";     // the profile's device name
  std::int64_t memory_bytes = 0;  // per device; 0 = no limit
  LinkSpec intra_node;
  LinkSpec inter_node;
};

// TOML keys: name, nodes, devices_per_node, device, memory_gib, [intra_node] / [inter_node] with
// latency_us and gigabytes_per_second.
ClusterSpec read_cluster(const std::filesystem::path& path);
ClusterSpec cluster_from_json(const Json& document, const std::string& where);
void validate(const ClusterSpec& cluster, const std::string& where);

}  // namespace entrain
