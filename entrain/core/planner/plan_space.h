// The parallel configurations of a model that a cluster allows.
//
// Read first: PlanSpace::for_each().
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "entrain/core/planner/plan_shape.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Instead of a number of virtual stages: 1 to kMostVirtualStages, for each module another.
inline constexpr int kAutoVirtualStages = 0;
inline constexpr int kMostVirtualStages = 4;

// Whether plans are looked at in which every lane hosts one stage of every module.
enum class SharedLanes : std::uint8_t {
  kNever,  // one lane that hosts everything apart
  kToo,    // beside those with lanes of their own; none with virtual stages
  kOnly,
};

// What a schedule runs: `dip` wants lanes of all modules alone.
SharedLanes shared_lanes_of(const std::string& schedule, SharedLanes wanted);

// What lanes are to host, for both planners.
//
// Throws  InvalidInput for a negative number, where the schedule is `interleaved` and no lane is to
//         host several stages of a module, and for kOnly with a single module or virtual stages.
void check_lane_contents(const ModelSpec& model,
                         const std::string& schedule,
                         SharedLanes shared_lanes,
                         int virtual_stages);

// What a larger space adds to a smaller one; PlanSpace::features() is a set of them.
enum PlanFeature : std::uint8_t {
  kContextParallel = 1,  // degrees above 1
  kVirtualStages = 2,    // where the space also has configurations without
  kIdleDevices = 4,      // devices left idle at will
  kSharedLanes = 8,      // kColocated on several lanes, where there are other layouts too
};

struct SpaceOptions {
  int global_batch = 1;              // >= 1; replicas divide it
  std::vector<int> microbatches{4};  // samples of a slot: num_slots = ⌈global_batch / (D·µ)⌉
  int replicas = 0;                  // > 0: only so many
  SharedLanes shared_lanes = SharedLanes::kNever;
  int virtual_stages = 1;     // of every module; kAutoVirtualStages: any numbers
  bool virtual_only = false;  // no configuration without virtual stages: `interleaved` wants that
  bool idle_devices = false;  // also configurations that leave devices idle at will
};

// The configurations of a cluster of N devices:
// - replicas D: divisors of the global batch, D <= N; each has ⌊N / D⌋ devices;
// - every module: degrees from cluster_degrees(), 1 … layers stages;
// - all three layouts where they differ, but kColocated on several lanes only as shared_lanes says,
//   and nothing else with kOnly; modules that share lanes have equal numbers of stages and of
//   devices a lane, and no virtual stages;
// - the devices of a replica are all used, or, where no configuration of that D can, as many as one
//   can (with idle_devices: any number up to all); kSharedLanes counts by itself;
// - mesh_fits().
class PlanSpace {
 public:
  // `model` and `cluster` must outlive the space.
  // Throws  InvalidInput for numbers out of range, for `replicas` that do not divide the global
  //         batch or exceed the devices, and for more virtual stages than layers, naming what is
  //         allowed.
  PlanSpace(const ModelSpec& model,
            const ClusterSpec& cluster,
            std::vector<std::vector<Degrees>> degrees,
            const SpaceOptions& options);

  [[nodiscard]] const std::vector<int>& replica_counts() const { return replica_counts_; }
  [[nodiscard]] const std::vector<std::vector<Degrees>>& degrees() const { return degrees_; }
  [[nodiscard]] const ClusterSpec& cluster() const { return cluster_; }
  [[nodiscard]] int num_devices() const;

  // Whether to visit configurations of `replicas` in which this module has degrees()[module][index]
  // and this number of stages.
  using Filter = std::function<bool(int module, int degrees_index, int stages)>;
  using Visit = std::function<void(const PlanShape& config)>;
  // Visits every configuration with this number of replicas that passes the filter, each once, in
  // an order that depends on nothing else. The filter is called before dependent choices are
  // listed.
  //
  // Cost  O(configurations of all encoders that pass × degrees of the LLM), no memory.
  void for_each(int replicas, const Filter& filter, const Visit& visit) const;

  // Of a module on so many lanes of its own: the least and the largest number of virtual stages.
  [[nodiscard]] std::pair<int, int> virtual_stages(int module, int lanes) const;

  // The numbers of slots that the microbatch sizes make, rising.
  [[nodiscard]] std::set<int> slot_counts(int replicas) const;

  // What a configuration has of the things that a smaller space has not: a set of PlanFeature.
  [[nodiscard]] unsigned features(const PlanShape& config) const;
  // The sets that configurations here may have, the empty one first, each after its subsets.
  [[nodiscard]] std::vector<unsigned> feature_sets() const;

  // Whether the space contains this configuration.
  [[nodiscard]] bool contains(const PlanShape& config) const;

 private:
  struct Walk;
  [[nodiscard]] int most_devices_used(int replicas) const;
  [[nodiscard]] int most_devices_shared(int replicas) const;  // by kSharedLanes
  // Whether it is kColocated on several lanes beside other layouts.
  [[nodiscard]] bool shares_all_lanes(const PlanShape& config) const;

  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  std::vector<std::vector<Degrees>> degrees_;
  SpaceOptions options_;
  std::vector<int> replica_counts_;
  std::vector<int> layers_;  // [module]
  std::vector<int> lanes_;   // [module] most that its layers allow
  // [index into replica_counts_] devices of a replica to be used, and by kSharedLanes
  std::vector<int> used_;
  std::vector<int> used_by_shared_;
};

}  // namespace entrain
