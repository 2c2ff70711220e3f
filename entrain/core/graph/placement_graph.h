// A replica's placement as the flat graph that the list scheduler replays. A search rebuilds it
// for every move, without an intermediate StepAssignment, groups or Program.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

class PlacementGraph {
 public:
  PlacementGraph(const Plan& plan, const StepCosts& costs);

  [[nodiscard]] const StageGraph& stages() const { return stages_; }

  // Requires whole samples: no chunks in the replica.
  // Ensures  equal to replica_graph() of the groups that build_groups() makes of the placement,
  //          except for stages of equal cost, which are one kind.
  // Cost     O(units × stages + units log units) of the replica; the result lives until the next
  //          call.
  const ReplicaGraph& build(const Placement& placement, int replica);

 private:
  // A module's costs without launch constants, unit by unit.
  struct Module {
    int num_stages = 0;
    int first_backward = 0;  // by its own trainable stages; num_stages if none
    // Stages of equal layers cost the same: sums are computed once per kind.
    int num_kinds = 0;
    // [unit × num_kinds + kind]; behind the units the sums over each sample's
    std::vector<GraphUnit> units;
    std::vector<GraphUnit> launch;                 // [kind]
    std::vector<std::int64_t> work;                // likewise: forward and backward over all stages
    std::int64_t launch_work = 0;                  // of one forward and backward on every stage
    const std::vector<int>* first_unit = nullptr;  // [sample + 1]
  };
  // Neighbouring parts that run as one.
  struct Run {
    std::size_t begin = 0;  // into entries_
    std::size_t end = 0;
  };

  void add_units(const ModuleCosts& from, Module& module);
  static void add_samples(Module& module);
  void add_encoder(int module, const Placement& placement, int replica);
  void add_slot(int module, std::size_t begin, std::size_t end);
  void add_group(int module, const Run& run, int group);
  void add_llm(const Placement& placement, int replica);
  void mark_llm_slots(const Placement& placement, int replica);

  StageGraph stages_;
  std::vector<Module> modules_;
  ReplicaGraph graph_;
  std::vector<int> llm_group_;            // [LLM slot] ordinal among the LLM's groups; -1: empty
  std::vector<char> trainable_features_;  // [LLM slot]
  // Encoder work: slot << 44 | LLM slot << 24 | unit.
  std::vector<std::uint64_t> entries_;
  std::vector<Run> runs_;
};

}  // namespace entrain
