#include "entrain/core/spec/cluster.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace entrain {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kGigabyte = 1e9;
constexpr double kNanosecondsPerMicrosecond = 1e3;

// Reads a quantity and scales it to the unit held in memory.
double scaled(ObjectReader& reader, const std::string& key, double scale, double greatest) {
  const double value = reader.optional(key, 0.0);
  if (!(value >= 0 && value <= greatest)) {
    reader.fail(key, fmt::format("{} given; allowed: 0 to {}", value, greatest));
  }
  return value * scale;
}

LinkSpec read_link(ObjectReader reader) {
  LinkSpec link;
  link.latency = std::chrono::nanoseconds(
      std::llround(scaled(reader, "latency_us", kNanosecondsPerMicrosecond, 1e9)));
  link.bytes_per_second = scaled(reader, "gigabytes_per_second", kGigabyte, 1e9);
  reader.finish();
  return link;
}

void check(bool holds, const std::string& where, const char* key, const std::string& message) {
  if (!holds) {
    throw InvalidInput(fmt::format("{}: {}", key_path(where, key), message));
  }
}

void validate_link(const LinkSpec& link, const std::string& where, const char* key) {
  check(link.latency.count() >= 0,
        where,
        key,
        fmt::format("latency of {} ns; at least 0 is needed", link.latency.count()));
  check(std::isfinite(link.bytes_per_second) && link.bytes_per_second >= 0,
        where,
        key,
        fmt::format("{} bytes per second; at least 0 is needed", link.bytes_per_second));
}

}  // namespace

ClusterSpec read_cluster(const std::filesystem::path& path) {
  return cluster_from_json(read_toml_file(path), path.string());
}

ClusterSpec cluster_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  ClusterSpec cluster;
  cluster.name = reader.required<std::string>("name");
  cluster.num_nodes = reader.optional("nodes", cluster.num_nodes);
  cluster.devices_per_node = reader.optional("devices_per_node", cluster.devices_per_node);
  cluster.device = reader.optional("device", cluster.device);
  cluster.memory_bytes = std::llround(scaled(reader, "memory_gib", kGibibyte, 1e6));
  cluster.intra_node = read_link(reader.optional_object("intra_node"));
  cluster.inter_node = read_link(reader.optional_object("inter_node"));
  reader.finish();
  validate(cluster, where);
  return cluster;
}

void validate(const ClusterSpec& cluster, const std::string& where) {
  constexpr int kMost = 1'000'000;
  const auto check_count = [&](const char* key, int value) {
    check(value >= 1 && value <= kMost,
          where,
          key,
          fmt::format("{} given; allowed: 1 to {}", value, kMost));
  };
  check_count("nodes", cluster.num_nodes);
  check_count("devices_per_node", cluster.devices_per_node);
  check(!cluster.device.empty(), where, "device", "the name is empty");
  check(cluster.memory_bytes >= 0,
        where,
        "memory_gib",
        fmt::format("{} bytes given; at least 0 is needed", cluster.memory_bytes));
  validate_link(cluster.intra_node, where, "intra_node");
  validate_link(cluster.inter_node, where, "inter_node");
}

}  // namespace entrain
