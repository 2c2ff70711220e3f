#include "entrain/core/planner/plan_shape.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/sharding.h"

namespace entrain {
namespace {

// Whether of any two group sizes one divides the other, and all divide a node.
bool divide_each_other(const PlanShape& config, const ClusterSpec& cluster) {
  for (const ModuleShape& a : config.modules) {
    const int size = a.degrees.tensor_parallel;
    if (cluster.devices_per_node % size != 0) {
      return false;
    }
    for (const ModuleShape& b : config.modules) {
      const int other = b.degrees.tensor_parallel;
      if (size % other != 0 && other % size != 0) {
        return false;
      }
    }
  }
  return true;
}

bool shares_lanes(ModuleLayout layout, int module, int llm) {
  return layout == ModuleLayout::kColocated ||
         (layout == ModuleLayout::kSharedEncoders && module < llm);
}

}  // namespace

bool PlanShape::has_virtual_stages() const {
  return std::any_of(modules.begin(), modules.end(), [](const ModuleShape& shape) {
    return shape.virtual_stages > 1;
  });
}

int lanes_of(const PlanShape& config) {
  const int llm = static_cast<int>(config.modules.size()) - 1;
  int lanes = config.layout == ModuleLayout::kColocated ? 0 : config.modules.back().stages;
  for (int module = 0; module < llm; ++module) {
    if (module == 0 || !shares_lanes(config.layout, module, llm)) {
      lanes += config.modules[at(module)].stages;
    }
  }
  return llm == 0 ? config.modules.back().stages : lanes;
}

int devices_per_replica(const PlanShape& config) {
  const int llm = static_cast<int>(config.modules.size()) - 1;
  int devices = 0;
  for (int module = 0; module <= llm; ++module) {
    if (module == 0 || !shares_lanes(config.layout, module, llm)) {
      const ModuleShape& shape = config.modules[at(module)];
      devices += shape.degrees.devices() * shape.stages;
    }
  }
  return devices;
}

std::string describe(const ModuleShape& shape, const ModelSpec& model, int module) {
  std::vector<std::string> degrees;
  if (shape.degrees.tensor_parallel > 1) {
    degrees.push_back(fmt::format("TP {}", shape.degrees.tensor_parallel));
  }
  if (shape.degrees.context_parallel > 1) {
    degrees.push_back(fmt::format("CP {}", shape.degrees.context_parallel));
  }
  return fmt::format(
      "{} {} lane{}{}{}",
      module_name(model, module),
      shape.stages,
      shape.stages == 1 ? "" : "s",
      shape.virtual_stages == 1 ? "" : fmt::format(" of {} stages", shape.virtual_stages),
      degrees.empty() ? "" : fmt::format(" ({})", join(degrees)));
}

std::string describe(const PlanShape& config, const ModelSpec& model) {
  const int llm = model.llm_module();
  std::string text =
      fmt::format("{} replica{} of ", config.replicas, config.replicas == 1 ? "" : "s");
  for (int module = 0; module <= llm; ++module) {
    if (module > 0) {
      text += shares_lanes(config.layout, module, llm) ? " | " : " + ";
    }
    text += describe(config.modules[at(module)], model, module);
  }
  return text;
}

std::vector<std::vector<StageRef>> lane_stages(const PlanShape& config) {
  const int llm = static_cast<int>(config.modules.size()) - 1;
  std::vector<std::vector<StageRef>> lanes;
  for (int module = 0; module <= llm; ++module) {
    const bool shared = module > 0 && shares_lanes(config.layout, module, llm);
    const ModuleShape& shape = config.modules[at(module)];
    const std::size_t first = shared ? 0 : lanes.size();
    lanes.resize(std::max(lanes.size(), first + at(shape.stages)));
    for (int stage = 0; stage < shape.all_stages(); ++stage) {
      lanes[first + at(stage % shape.stages)].push_back({module, stage});
    }
  }
  return lanes;
}

std::vector<std::vector<Degrees>> cluster_degrees(const ModelSpec& model,
                                                  const Profile& profile,
                                                  const ClusterSpec& cluster) {
  std::vector<std::vector<Degrees>> result;
  for (int module = 0; module < model.num_modules(); ++module) {
    const std::string name = module_name(model, module);
    std::set<std::pair<int, int>> known;
    for (const LayerProfile& layer : profile.layers) {
      if (layer.module == name) {
        known.insert({layer.tensor_parallel, layer.context_parallel});
      }
    }
    std::vector<Degrees>& degrees = result.emplace_back();
    std::vector<std::string> words;
    for (const auto& [tensor, context] : known) {
      words.push_back(fmt::format("TP {} CP {}", tensor, context));
      if (cluster.devices_per_node % tensor == 0 &&
          sharding_obstacle(model, module, tensor).empty()) {
        degrees.push_back({tensor, context});
      }
    }
    if (degrees.empty()) {
      throw InvalidInput(fmt::format(
          "cluster '{}' has {} devices a node; tensor parallelism has to divide that, and the "
          "profile has costs of '{}' for: {}",
          cluster.name,
          cluster.devices_per_node,
          name,
          words.empty() ? "nothing" : join(words)));
    }
  }
  return result;
}

Profile cluster_profile(const Profile& profile, const ClusterSpec& cluster, int replicas) {
  const auto known = [](const LinkSpec& link) {
    return link.latency.count() > 0 || link.bytes_per_second > 0;
  };
  const int devices = cluster.num_nodes * cluster.devices_per_node / replicas;
  const bool within_nodes =
      devices > 0 && devices <= cluster.devices_per_node && cluster.devices_per_node % devices == 0;
  Profile result = profile;
  if (known(cluster.intra_node)) {
    result.link = cluster.intra_node;
    result.reduce_bytes_per_second = cluster.intra_node.bytes_per_second / 2;
  }
  if (cluster.num_nodes > 1 && known(cluster.inter_node)) {
    result.link = within_nodes ? result.link : cluster.inter_node;
    result.reduce_bytes_per_second = cluster.inter_node.bytes_per_second / 2;
  }
  return result;
}

bool mesh_fits(const PlanShape& config, const ClusterSpec& cluster) {
  const int llm = static_cast<int>(config.modules.size()) - 1;
  if (divide_each_other(config, cluster)) {
    return true;  // largest first, they fill nodes without a gap
  }
  std::map<int, std::int64_t, std::greater<>> groups;  // size → number
  for (int module = 0; module <= llm; ++module) {
    if (module > 0 && shares_lanes(config.layout, module, llm)) {
      continue;  // on lanes counted before; its groups are checked separately below
    }
    const ModuleShape& shape = config.modules[at(module)];
    int size = shape.degrees.tensor_parallel;
    for (int other = module + 1; other <= llm; ++other) {
      if (shares_lanes(config.layout, module, llm) && shares_lanes(config.layout, other, llm)) {
        size = std::max(size, config.modules[at(other)].degrees.tensor_parallel);
      }
    }
    groups[size] += std::int64_t{config.replicas} * shape.stages * (shape.degrees.devices() / size);
  }
  std::map<int, std::int64_t> nodes{
      {cluster.devices_per_node, cluster.num_nodes}};  // free → number
  for (auto [size, left] : groups) {
    while (left > 0) {
      const auto node = nodes.lower_bound(size);
      if (node == nodes.end()) {
        return false;
      }
      // Nodes of one kind are filled alike, as far as whole ones are needed.
      const auto [free, number] = *node;
      const std::int64_t each = free / size;
      const std::int64_t filled = std::max<std::int64_t>(1, std::min(number, left / each));
      const std::int64_t placed = std::min(left, filled * each);
      nodes.erase(node);
      if (number > filled) {
        nodes[free] += number - filled;
      }
      const auto rest = static_cast<int>(free - placed / filled * size);
      if (rest > 0) {
        nodes[rest] += filled;
      }
      left -= placed;
    }
  }
  return true;
}

}  // namespace entrain
