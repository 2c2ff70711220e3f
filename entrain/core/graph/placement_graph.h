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
  // Cost     O(units) of the replica, and O(units × kinds of stages + units log units) of those
  // slots
  //          that are not what they were in its last call; where their groups changed, too,
  //          O(groups × kinds) of the replica. The result lives until the replica's next call.
  const ReplicaGraph& build(const Placement& placement, int replica);
  // ReplicaGraph::shape() of the replica's last graph.
  [[nodiscard]] std::uint64_t shape(int replica) const {
    return replicas_[static_cast<std::size_t>(replica)].shape;
  }

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
  // Parts of an encoder slot that run as one, or an LLM slot.
  struct Group {
    GraphGroup graph;             // once it is assembled; before without numbers
    std::vector<int> llm_slots;   // encoders: those served, rising
    std::vector<GraphUnit> sums;  // [kind]
  };
  struct Slot {
    std::vector<std::uint64_t> entries;  // work: LLM slot << 24 | unit, as gathered
    std::vector<Group> groups;
  };
  // A search changes few slots between two calls: the sums of the others, and where no slot's
  // groups change the whole graph but for sums, are kept.
  struct Replica {
    ReplicaGraph graph;
    std::uint64_t shape = 0;
    std::vector<std::vector<Slot>> slots;  // [module][slot]
  };

  void add_units(const ModuleCosts& from, Module& module);
  static void add_samples(Module& module);
  void gather_encoder(int module, const Placement& placement, int replica);
  void gather_llm(const Placement& placement, int replica);
  // Returns  whether the slots' groups are what they were, with other costs at most.
  bool update(int module, Replica& of);
  void group_parts(int module, int slot);
  void fill(const Module& of, std::size_t begin, std::size_t end, Group& group) const;
  void assemble(int num_slots, Replica& of) const;
  void append(const Module& module, Group& group, ReplicaGraph& graph) const;

  StageGraph stages_;
  std::vector<Module> modules_;
  std::vector<int> kind_;  // [stage number]
  std::vector<Replica> replicas_;
  std::vector<std::vector<std::uint64_t>> gathered_;  // [slot] of one module
  std::vector<std::uint64_t> sorted_;                 // entries of one slot
  std::vector<std::size_t> starts_;                   // its groups', in sorted_
  std::vector<Group> groups_;                         // of that slot
};

}  // namespace entrain
