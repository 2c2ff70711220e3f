// One step's dependency graph on flat arrays, for schedules, searches, simulator and bounds.
//
// Read first: StepGraph, ReplicaGraph. A *unit* is one group on one stage of its module. Groups are
// numbered by module, slot, group; a group's units have consecutive numbers in order of stage, so
// that `unit - 1` is the previous stage and `unit + 1` the next. Stages of equal cost are
// one kind, whose costs a group stores once: a module with many stages has few kinds.
//
// Two builders: replica_graph() from groups, for a program; PlacementGraph (placement_graph.h) from
// a search's placement, which is faster.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/groups.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// Fixed by the plan, equal for all replicas and steps. Stages of all modules are numbered module
// by module: the *stage number*.
struct StageGraph {
  struct Stage {
    int module = 0;
    int stage = 0;
    int lane = 0;
    bool last = false;         // of its module
    bool crosses = false;      // its output goes to another lane; false on the LLM's last stage
    int warm_up = 0;           // stages that follow on the way to the loss
    bool both_halves = false;  // by set_halves()
  };
  std::vector<Stage> stages;            // [stage number]
  std::vector<int> first_stage;         // [module + 1] into `stages`
  std::vector<std::vector<int>> lanes;  // [lane] numbers of its stages
  int llm = 0;                          // module
  int llm_first_lane = 0;
  LinkSpec link;

  [[nodiscard]] int num_stages(int module) const {
    return first_stage[static_cast<std::size_t>(module) + 1] -
           first_stage[static_cast<std::size_t>(module)];
  }
  [[nodiscard]] int number(int module, int stage) const {
    return first_stage[static_cast<std::size_t>(module)] + stage;
  }
  [[nodiscard]] const Stage& of(int module, int stage) const {
    return stages[static_cast<std::size_t>(number(module, stage))];
  }
  // Marks the stages whose backward a rule may split by stage: those with weight gradients to
  // compute and an input gradient, if only from layer to layer within the stage. Autograd does one
  // half only for a frozen stage and for a stage whose first layer alone is trainable; there a
  // backward stays whole, which is that half.
  // Cost  O(units).
  void set_halves(const StepCosts& costs);
  // Whether the LLM's first stage takes the stage's output.
  [[nodiscard]] bool feeds_llm(const Stage& of) const { return of.last && of.module != llm; }
};

// Requires  a plan that is valid for its model.
StageGraph stage_graph(const Plan& plan, const LinkSpec& link);
// Throws    InvalidInput when a stage is on no lane of the program.
StageGraph stage_graph(const Program& program, const LinkSpec& link);

// Nanoseconds with launch constants, and bytes, of one group on one stage.
struct GraphUnit {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
  std::int64_t split = 0;  // OperationTimes::split
  std::int64_t activation_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t key_value_bytes = 0;  // of its chunks that others follow
  RecomputeBytes recompute{};
  std::int64_t transfer_ns = 0;  // of output_bytes over the plan's link

  [[nodiscard]] std::int64_t backward() const { return backward_input + backward_weight; }
  [[nodiscard]] std::int64_t weight_half() const { return backward_weight + split; }
  bool operator==(const GraphUnit&) const = default;
};

struct GraphGroup {
  int module = 0;
  int slot = 0;
  int group = 0;           // within its slot
  int first_unit = 0;      // number of stage 0's
  int first_cost = 0;      // into `costs`
  int first_backward = 0;  // lowest stage with a backward; the module's num_stages if none
  // The LLM slot whose turn releases the group's backward. For an LLM group: its own, or the one in
  // which its chunks' samples end; for an encoder group: the latest of the LLM groups it serves.
  int turn = 0;
  // The lowest slot among the LLM groups with that turn that it serves: as backward runs in falling
  // slot order, it completes the gradient. An LLM group's own slot.
  int completing = 0;
  int served_begin = 0;  // encoders: into `served`
  int served_end = 0;
};

// Lists by group in one array.
struct GroupLists {
  std::vector<int> begin;  // [list + 1]; empty: every list is
  std::vector<int> groups;

  [[nodiscard]] std::span<const int> of(int list) const {
    if (begin.empty()) {
      return {};
    }
    const auto first = static_cast<std::size_t>(list);
    return {groups.data() + begin[first], groups.data() + begin[first + 1]};
  }
};

struct ReplicaGraph {
  int num_slots = 0;
  int num_units = 0;
  std::vector<GraphUnit> costs;  // of every group, one for each kind of its module's stages
  std::vector<int> kind;         // [stage number]
  std::vector<GraphGroup> groups;
  std::vector<int> first_group;  // [module + 1] into `groups`
  // [module × (num_slots + 1) + slot] into `groups`. Empty where made from a placement.
  std::vector<int> first_of_slot;
  std::vector<int> served;  // LLM groups that take an encoder group's output, rising
  // By LLM group, counted from the LLM's first: encoder groups whose output it takes, rising.
  GroupLists sources;
  // Likewise: LLM groups, on every stage, with the chunks just before and just after those of the
  // group, and those with earlier chunks of samples that end in the group. Rising.
  GroupLists earlier;
  GroupLists later;
  GroupLists ended;
  // A module's groups by (turn, falling completing slot, slot, group), at first_group: an order in
  // which no chunk's backward comes before that of a later one.
  std::vector<int> backward_order;

  [[nodiscard]] const GraphGroup& group(int number) const {
    return groups[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] int first_llm_group() const { return first_group[first_group.size() - 2]; }
  [[nodiscard]] int end_of(int module) const {
    return first_group[static_cast<std::size_t>(module) + 1];
  }
  [[nodiscard]] bool is_llm(int group) const { return group >= first_llm_group(); }
  // Groups of one module's slot: numbers [first(m, s), first(m, s + 1)).
  [[nodiscard]] int first(int module, int slot) const {
    return first_of_slot[static_cast<std::size_t>(module * (num_slots + 1) + slot)];
  }
  [[nodiscard]] int number(const UnitKey& unit) const {
    return first(unit.module, unit.slot) + unit.group;
  }
  [[nodiscard]] int unit(int group_number, int stage) const {
    return group(group_number).first_unit + stage;
  }
  [[nodiscard]] UnitKey key(int group_number, int stage) const {
    const GraphGroup& of = group(group_number);
    return {of.module, stage, of.slot, of.group};
  }
  [[nodiscard]] bool has(const StageGraph& stages, const UnitKey& unit) const {
    const auto below = [](int value, int end) {  // and not negative
      return static_cast<unsigned>(value) < static_cast<unsigned>(end);
    };
    return below(unit.module, stages.llm + 1) && below(unit.slot, num_slots) &&
           below(unit.stage, stages.num_stages(unit.module)) &&
           below(unit.group, first(unit.module, unit.slot + 1) - first(unit.module, unit.slot));
  }
  // The number of the group of a key.
  // Throws  InvalidInput when the replica has no such unit.
  [[nodiscard]] int checked_number(const StageGraph& stages, const UnitKey& unit) const {
    if (!has(stages, unit)) {
      refuse(unit);
    }
    return number(unit);
  }

  [[nodiscard]] std::span<const int> served_by(const GraphGroup& group) const {
    return {served.data() + group.served_begin, served.data() + group.served_end};
  }
  [[nodiscard]] std::span<const int> sources_of(int llm_group) const {
    return sources.of(llm_group - first_llm_group());
  }
  // Of any group; empty for encoders.
  [[nodiscard]] std::span<const int> earlier_of(int group) const { return of(earlier, group); }
  [[nodiscard]] std::span<const int> later_of(int group) const { return of(later, group); }
  [[nodiscard]] std::span<const int> ended_of(int group) const { return of(ended, group); }

  // `stage`: its number.
  [[nodiscard]] int cost_index(const GraphGroup& group, int stage) const {
    return group.first_cost + kind[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] const GraphUnit& cost(const GraphGroup& group, int stage) const {
    return costs[static_cast<std::size_t>(cost_index(group, stage))];
  }

  // A number that graphs of the same groups and dependencies share, whatever their costs; others
  // have another, but for chance (64 bits).
  // Cost  O(groups + dependencies).
  [[nodiscard]] std::uint64_t shape() const;

  // For builders: fills sources and backward_order from the groups.
  void link();

 private:
  [[noreturn]] static void refuse(const UnitKey& unit);
  [[nodiscard]] std::span<const int> of(const GroupLists& lists, int group) const {
    return lists.begin.empty() || !is_llm(group) ? std::span<const int>()
                                                 : lists.of(group - first_llm_group());
  }
};

// The first LLM slot that an encoder group serves.
int opening_slot(const ReplicaGraph& graph, int group);
// Encoder groups by opening_slot(), rising within a slot.
std::vector<int> opening_order(const ReplicaGraph& graph);
// Encoder groups of all modules in the order in which their gradients are complete: by turn,
// falling completing slot, number.
std::vector<int> releasing_order(const ReplicaGraph& graph);

// Every stage is a kind of its own, so that a group's costs are numbered as its units.
//
// Shapes  groups: of one replica.
// Throws  InvalidInput for a chunk that is no range within its sample's tokens; InternalError where
//         groups name LLM groups that are not there.
// Cost    O(items × stages + parts).
ReplicaGraph replica_graph(const StageGraph& stages,
                           const StepCosts& costs,
                           const std::vector<ModuleGroups>& groups);

// The same in two parts, for a search that asks few of its graphs for costs.
// kind: ReplicaGraph::kind, by first stage within each module.
// Cost    O(groups + parts), and O(items × kinds).
ReplicaGraph graph_without_costs(const StageGraph& stages,
                                 const std::vector<int>& kind,
                                 const std::vector<ModuleGroups>& groups);
void fill_costs(const StageGraph& stages,
                const StepCosts& costs,
                const std::vector<ModuleGroups>& groups,
                ReplicaGraph& graph);

// The graph of a whole step.
struct StepGraph {
  StageGraph stages;
  std::vector<ReplicaGraph> replicas;
};

// Throws  as stage_graph() and replica_graph() do, and InvalidInput for a channel whose lanes are
//         not those of its stages.
StepGraph step_graph(const Program& program, const StepCosts& costs);

}  // namespace entrain
