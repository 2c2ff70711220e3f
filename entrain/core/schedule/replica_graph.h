// One replica's operations and their dependencies as flat arrays: what a list scheduler reads.
//
// Read first: ReplicaGraph. Groups stand by module, slot, group; a group's units (one per stage of
// its module) have neighbouring numbers in order of stage. Stages that cost the same are one kind,
// whose costs a group has once: a module of many stages has few. Every stage runs its forwards in
// order of groups and its backwards in `backward_order`, so that only what lies between stages is a
// dependency.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/schedule/groups.h"
#include "entrain/core/schedule/unit_table.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// What the plan fixes, equal for all replicas and steps.
struct StageGraph {
  struct Stage {
    int module = 0;
    int stage = 0;
    int lane = 0;
    bool last = false;     // of its module
    bool crosses = false;  // its output goes to another lane; false on the LLM's last stage
    int warm_up = 0;       // stages that follow on the way to the loss
  };
  std::vector<Stage> stages;            // by module, stage: the *stage number*
  std::vector<int> first_stage;         // [module + 1] into `stages`
  std::vector<std::vector<int>> lanes;  // [lane] numbers of its stages
  int llm = 0;                          // module
  int llm_first_lane = 0;
  LinkSpec link;

  [[nodiscard]] int num_stages(int module) const {
    return first_stage[static_cast<std::size_t>(module) + 1] -
           first_stage[static_cast<std::size_t>(module)];
  }
};

// Requires  a plan that is valid for its model.
StageGraph stage_graph(const Plan& plan, const LinkSpec& link);

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
  bool operator==(const GraphUnit&) const = default;
};

struct GraphGroup {
  int module = 0;
  int slot = 0;
  int group = 0;           // within its slot
  int first_unit = 0;      // number of stage 0's
  int first_cost = 0;      // into `costs`
  int first_backward = 0;  // lowest stage with a backward; the module's num_stages if none
  int turn = 0;            // GroupEntry::release_slot
  int completing = 0;      // GroupEntry::completing_slot
  int served_begin = 0;    // encoders: into `served`
  int served_end = 0;
  int ended_begin = 0;  // LLM: into `ended`
  int ended_end = 0;
};

struct ReplicaGraph {
  int num_slots = 0;
  int num_units = 0;
  std::vector<GraphUnit> costs;  // of every group, one for each kind of its module's stages
  std::vector<int> kind;         // [stage number]
  std::vector<GraphGroup> groups;
  std::vector<int> first_group;  // [module + 1] into `groups`
  std::vector<int> served;       // LLM groups that take an encoder group's output
  std::vector<int> ended;        // LLM groups with earlier chunks of samples that end in a group
  // A module's groups by (turn, falling completing slot, slot, group), at first_group: an order in
  // which no chunk's backward comes before that of a later one.
  std::vector<int> backward_order;

  // `stage`: its number.
  [[nodiscard]] int cost_index(const GraphGroup& group, int stage) const {
    return group.first_cost + kind[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] const GraphUnit& cost(const GraphGroup& group, int stage) const {
    return costs[static_cast<std::size_t>(cost_index(group, stage))];
  }

  // Fills backward_order from the groups' turns.
  void sort_backwards();
};

// Every stage is a kind of its own.
// Shapes  groups and table of one replica.
ReplicaGraph replica_graph(const StageGraph& stages,
                           const StepCosts& costs,
                           const std::vector<ModuleGroups>& groups,
                           const UnitTable& table);

}  // namespace entrain
