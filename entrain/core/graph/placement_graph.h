// A replica's placement as the flat graph that the list scheduler replays, without an intermediate
// StepAssignment, groups or Program. A search's move costs what it changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/kind_costs.h"
#include "entrain/core/graph/placement.h"
#include "entrain/core/graph/placement_edit.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

class PlacementGraph {
 public:
  PlacementGraph(const Plan& plan, const StepCosts& costs);
  // Another one of the same plan and costs, without a placement, which may be used beside this one
  // on another thread.
  [[nodiscard]] PlacementGraph fresh() const { return {*this, replicas_.size()}; }

  [[nodiscard]] const StageGraph& stages() const { return stages_; }
  [[nodiscard]] const std::vector<int>& kind_of_stage() const { return kind_; }

  // Takes the placement of a replica. Its graph is built once it is asked for, and may be the one
  // it has: a search asks only for those that it simulates.
  //
  // Requires  whole samples for graph(): no chunks in the replica.
  // Returns   a number that placements of the same groups and dependencies share, whatever their
  //           costs; others have another, but for chance (64 bits). Not ReplicaGraph::shape().
  // Cost      O(units) of the replica, and O(units log units) of those slots that are what they
  //           were in neither of its last two calls.
  std::uint64_t place(const Placement& placement, int replica);
  // The same of an edited placement. The replica's next edit starts from where this one did, unless
  // it is kept.
  //
  // Requires  the placement before the edit was the replica's last one, apart from edits that were
  //           not kept.
  // Cost      O(changed units + units of the slots that they are in or leave), and O(1) for each
  //           slot of the last edit.
  std::uint64_t place(const PlacementEdit& edit, int replica);
  // The replica's next edit starts from its last placement.
  void keep(int replica) { replicas_[static_cast<std::size_t>(replica)].edited.clear(); }
  // Of the replica's last placement, until the replica's next call.
  //
  // Requires  place() was called for the replica.
  // Ensures   equal to replica_graph() of the groups that build_groups() makes of the placement,
  //           except for stages of equal cost, which are one kind.
  // Cost      O(units × kinds of stages) of the slots that changed since the replica's last call,
  //           or of the units that an edit changed where their groups stayed; where groups changed,
  //           O(groups × kinds) of the replica.
  const ReplicaGraph& graph(int replica);

  // Stages of a module whose units cost the same are one kind.
  [[nodiscard]] std::size_t num_kinds(int module) const {
    return (*modules_)[static_cast<std::size_t>(module)].kinds.size();
  }
  // Without launch constants: a unit's, or, behind the units, the sum over a sample's.
  [[nodiscard]] GraphUnit cost_of(int module, int unit, std::size_t kind) const {
    return (*modules_)[static_cast<std::size_t>(module)].cost(static_cast<std::size_t>(unit), kind);
  }
  // Calls visit(slot, unit) for a sample's units of an encoder; once, for their sum, where they are
  // in one slot.
  template <class Visit>
  void for_each_part(int module, const Placement& placement, int sample, Visit visit) const {
    const std::vector<int>& first = *(*modules_)[static_cast<std::size_t>(module)].first_unit;
    const int begin = first[static_cast<std::size_t>(sample)];
    const int end = first[static_cast<std::size_t>(sample) + 1];
    const int* slots = placement.encoder_slot[static_cast<std::size_t>(module)].data();
    if (begin < end && std::equal(slots + begin + 1, slots + end, slots + begin)) {
      visit(slots[begin], first.back() + sample);
      return;
    }
    for (int unit = begin; unit < end; ++unit) {
      visit(slots[unit], unit);
    }
  }

 private:
  PlacementGraph(const PlacementGraph& of, std::size_t replicas)
      : stages_(of.stages_), modules_(of.modules_), kind_(of.kind_), replicas_(replicas) {}

  // Parts of an encoder slot that run as one, or an LLM slot.
  struct Group {
    std::size_t begin = 0;  // into Work::parts
    std::size_t end = 0;
    int served_begin = 0;  // into Work::served
    int served_end = 0;
    int turn = 0;
  };
  struct Work {
    std::uint64_t key = 0;             // of `parts`, whatever their order; 0 for an empty slot
    std::vector<std::uint64_t> parts;  // LLM slot << 24 | unit, rising
    std::vector<Group> groups;
    std::vector<int> served;      // LLM slots by group, each rising and followed by -1
    std::uint64_t shape = 0;      // of `served`, module and slot; 0 for an empty slot
    std::vector<GraphUnit> sums;  // [group × kinds + kind]; empty until the graph needs them
  };
  struct PartChange {
    std::uint64_t part = 0;  // as in Work::parts
    bool added = false;      // or removed
  };
  // A search changes few slots between two calls, and often takes that back.
  struct Slot {
    Work now;
    Work before;
    // What the graph has.
    std::vector<int> served;
    int first_group = 0;
    bool written = true;  // whether its costs are those of `now`; else in Replica::unwritten
    bool is_new = false;  // place_module(): whether its parts are to be gathered
    std::vector<PartChange> changes;  // by the edit that is being placed
  };
  struct SlotRef {
    int module = 0;
    int slot = 0;
  };
  struct Replica {
    ReplicaGraph graph;
    int num_slots = 0;
    std::uint64_t shape = 0;               // sum over slots
    std::vector<std::vector<Slot>> slots;  // [module][slot]
    std::vector<SlotRef> edited;           // `before` is theirs before the last edit
    std::vector<SlotRef> unwritten;
  };

  template <class Visit>
  void for_each_entry(int module, const Placement& placement, int replica, Visit visit) const;
  void place_module(int module, const Placement& placement, int replica, Replica& of);
  void set_num_slots(int num_slots, Replica& of) const;
  static void swap_works(const SlotRef& ref, Replica& of);
  void change_parts(const Placement& placement, int sample, bool added, Replica& of) const;
  bool renew(const SlotRef& ref, Replica& of) const;
  static void apply(const std::vector<PartChange>& changes, std::vector<std::uint64_t>& parts);
  void group_parts(int module, int slot, Work& work) const;
  void add_group(std::size_t begin, std::size_t end, Work& work) const;
  void sum_up(const KindCosts& of, Work& work) const;
  void change_sums(const KindCosts& of, const std::vector<PartChange>& changes, Work& work) const;
  void assemble(Replica& of) const;
  void append_slot(int module, int number, Slot& slot, ReplicaGraph& graph) const;
  static void copy_sums(Slot& slot, ReplicaGraph& graph);

  StageGraph stages_;
  std::shared_ptr<const std::vector<KindCosts>> modules_;
  std::vector<int> kind_;  // [stage number]
  std::vector<Replica> replicas_;
  std::vector<std::uint64_t> keys_;  // place_module(): [slot]
};

}  // namespace entrain
