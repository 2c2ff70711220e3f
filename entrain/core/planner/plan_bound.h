// Step times that no cut of layers, no assignment and no order of operations can beat under a
// parallel configuration: cheap enough to compute for every configuration of a large cluster.
//
// Read first: PlanBounds::bound(). docs/planning.md proves it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "entrain/core/planner/layer_figures.h"
#include "entrain/core/planner/partition.h"
#include "entrain/core/planner/plan_space.h"

namespace entrain {

enum class BoundCause : std::uint8_t {
  kWork,    // the module's share of the work on its slowest lane
  kShared,  // the work of all modules on lanes that they share
  kChain,   // one sample's forward and backward path through encoder and LLM
  kMemory,  // in every cut the state and the largest unit's minimum on some stage exceed a device's
            // memory
};

// Over all batches together. For kMemory `ns` is meaningless.
struct PlanBound {
  std::int64_t ns = 0;
  BoundCause cause = BoundCause::kWork;
  int module = 0;  // kWork, kMemory: which
};

// Why a configuration cannot fit in memory in any way: `bytes` are needed on `stage` of the
// most even cut, of which `state_bytes` are parameters, gradients and optimizer states.
struct MemoryShortage {
  int module = 0;
  int stage = 0;
  std::int64_t bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t missing_bytes = 0;
};

struct BoundRequest {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;
  const Batches* batches = nullptr;  // >= 1 batch
  const PlanSpace* space = nullptr;
  std::int64_t memory_bytes = 0;  // per device, without reserves; 0 = no limit
  bool recompute = false;         // layers may be recomputed, which keeps less of a unit
  StateOptions state;
  FigureOptions figures;
};

// For configurations of one space. All figures are sums over the batches.
class PlanBounds {
 public:
  // The objects the request points to must outlive the bounds.
  // Cost  that of layer_figures(), and O(pairs of degrees × layers³) for every number of replicas.
  explicit PlanBounds(const BoundRequest& request);

  // Of one module by itself on so many lanes: least over all cuts of its layers within memory, and
  // over the numbers of virtual stages of the space.
  [[nodiscard]] PlanBound module_bound(int replicas,
                                       int module,
                                       int degrees_index,
                                       int stages) const;
  // Valid for every cut, assignment, number of slots and order.
  // Requires  a configuration of the space.
  // Cost      O(modules × pairs of degrees).
  [[nodiscard]] PlanBound bound(const PlanShape& config) const;

  // The time by the classical formula for 1F1B, including launches, used to order the remaining
  // configurations. Not a bound.
  [[nodiscard]] std::int64_t estimate(const PlanShape& config) const;

  // [module] layers cut where the slowest stage is fastest, within memory; empty where no cut fits.
  // With `recomputed` memory holds what is kept where every layer is recomputed; that takes time
  // which the cut does not see. With virtual stages by wrapped_partition(), which knows no memory.
  [[nodiscard]] std::vector<std::vector<LayerRange>> cut(const PlanShape& config,
                                                         bool recomputed = false) const;
  // The fullest stage of the module's most even cut by bytes; missing_bytes <= 0 if it fits.
  // Cost      O(layers² × stages).
  [[nodiscard]] MemoryShortage shortage(int replicas, int module, const ModuleShape& shape) const;

  // Of one batch, for a given cut.
  [[nodiscard]] std::int64_t batch_bound(const PlanShape& config,
                                         const std::vector<std::vector<LayerRange>>& stages,
                                         std::size_t batch) const;
  // [lane] forward and backward of a replica's share of the work, without launches.
  [[nodiscard]] std::vector<std::int64_t> lane_work_ns(
      const PlanShape& config, const std::vector<std::vector<LayerRange>>& stages) const;
  // [lane] mean forward and backward of one of config.num_slots slots, with launches.
  [[nodiscard]] std::vector<std::int64_t> lane_slot_ns(
      const PlanShape& config, const std::vector<std::vector<LayerRange>>& stages) const;
  // Device time of all the module's work, at the first of its degrees.
  [[nodiscard]] std::int64_t device_work_ns(int module) const;

 private:
  // Of one module and pair of degrees, for one number of replicas.
  struct Table {
    std::vector<std::int64_t> work_ns;      // [layer] of a replica
    std::vector<std::int64_t> least_ns;     // [stages - 1] slowest lane of the best cut
    StageRules memory;                      // with every layer recomputed, where layers may be
    std::vector<std::int64_t> layer_bytes;  // instead of its own, with none recomputed
    ReplicaFigures figures;
    std::int64_t rounding_ns = 0;   // that a lane's work may fall short of its layers'
    std::int64_t share_ns = 0;      // all work of a replica and the reductions
    std::int64_t launch_ns = 0;     // of all layers, once
    std::int64_t optimizer_ns = 0;  // of all layers
  };
  // Of the module's slowest lane, without optimizer; kNoPartition where memory forbids the shape.
  [[nodiscard]] std::int64_t lane_ns(const Table& of, int lanes, int virtual_stages) const;
  [[nodiscard]] std::size_t index_of(int module, const Degrees& degrees) const;
  [[nodiscard]] const Table& table(const PlanShape& config, int module) const;
  [[nodiscard]] Table make_table(int replicas,
                                 int module,
                                 std::size_t index,
                                 ReplicaFigures of_replicas) const;
  [[nodiscard]] const std::vector<std::vector<Table>>& tables_of(int replicas) const;
  [[nodiscard]] const LayerFigures& figures_of(const PlanShape& config, int module) const;
  void collect_chains();
  // Of the longest chain; `batch` = number of batches: the sum over all.
  [[nodiscard]] std::int64_t chain_ns(const PlanShape& config, std::size_t batch) const;
  [[nodiscard]] std::int64_t lane_bound(const PlanShape& config,
                                        const std::vector<StageRef>& lane,
                                        const std::vector<std::vector<LayerRange>>& stages,
                                        std::size_t batch) const;

  BoundRequest request_;
  std::int64_t num_batches_;
  std::vector<std::vector<LayerFigures>> figures_;         // [module][degrees]
  std::map<int, std::vector<std::vector<Table>>> tables_;  // replicas → [module][degrees]
  // [encoder][its degrees][the LLM's degrees][batch], behind the last batch the sum; one encoder
  // without any where the model has none.
  std::vector<std::vector<std::vector<std::vector<std::int64_t>>>> chains_;
};

}  // namespace entrain
