// One parallel configuration of a model on a cluster: everything of a plan except the cut of
// layers.
//
// Read first: PlanShape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// Devices of a lane, which act as one.
struct Degrees {
  int tensor_parallel = 1;
  int context_parallel = 1;
  [[nodiscard]] int devices() const { return tensor_parallel * context_parallel; }
  bool operator==(const Degrees&) const = default;
};

struct ModuleShape {
  Degrees degrees;
  int stages = 1;          // lanes
  int virtual_stages = 1;  // stages of each of these lanes: stage i is on lane i mod `stages`

  [[nodiscard]] int all_stages() const { return stages * virtual_stages; }
  bool operator==(const ModuleShape&) const = default;
};

enum class ModuleLayout : std::uint8_t {
  kOwnLanes,        // every module has lanes of its own, with a stage or several
  kSharedEncoders,  // lane s hosts stage s of every encoder; the LLM has lanes of its own
  kColocated,       // lane s hosts stage s of every module
};

struct PlanShape {
  int replicas = 1;
  int num_slots = 1;  // the plan's default; the policy `entrain` chooses others
  ModuleLayout layout = ModuleLayout::kOwnLanes;
  std::vector<ModuleShape> modules;  // in module order

  // Whether some module's lanes host several of its stages, as the schedule `interleaved` wants.
  [[nodiscard]] bool has_virtual_stages() const;
  bool operator==(const PlanShape&) const = default;
};

int lanes_of(const PlanShape& config);
int devices_per_replica(const PlanShape& config);
// "2 replicas of vision 3 lanes (TP 2) + llm 1 lane (TP 4, CP 2)"; one device per lane is not
// mentioned, "|" instead of "+" separates modules that share lanes.
std::string describe(const PlanShape& config, const ModelSpec& model);
// "vision 3 lanes (TP 2)", "llm 2 lanes of 3 stages"
std::string describe(const ModuleShape& shape, const ModelSpec& model, int module);
// The plan's lanes for this configuration, in order of the pipeline.
std::vector<std::vector<StageRef>> lane_stages(const PlanShape& config);

// [module] the degrees at which the profile has costs, tensor parallelism inside a node: a divisor
// of devices_per_node, without a sharding_obstacle(). In order of tensor, then context parallelism.
// Throws  InvalidInput if a module has none left, listing those of the profile.
std::vector<std::vector<Degrees>> cluster_degrees(const ModelSpec& model,
                                                  const Profile& profile,
                                                  const ClusterSpec& cluster);

// The profile on a cluster: messages between lanes use the links within a node if
// nodes hold whole replicas, otherwise those between nodes; all-reduce at half the bandwidth
// of the links between nodes, or within the only one. Links missing in the cluster are those
// of the profile.
Profile cluster_profile(const Profile& profile, const ClusterSpec& cluster, int replicas);

// Whether the lanes of all replicas can be placed on the nodes so that every tensor-parallel group
// is within one node. Largest groups first into the fullest node that holds them: exact if
// group sizes divide each other (as powers of two do), otherwise a placement may be missed.
//
// Requires  the configuration has no more devices than the cluster.
bool mesh_fits(const PlanShape& config, const ClusterSpec& cluster);

}  // namespace entrain
