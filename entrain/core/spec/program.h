// The operation graph of one step: per lane the operations in the order in which they run.
//
// Read first: Program. A schedule builds it, validate_program() proves it, the engine executes it,
// the simulator replays it. Everything is keyed by (replica, module, stage, slot, group).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

enum class OperationKind : std::uint8_t {
  kForward,
  kBackward,        // input and weight gradients together
  kBackwardInput,   // split backward: input gradient
  kBackwardWeight,  // split backward: weight gradient
  kSend,
  kReceive,
  kReduceGradients,  // sum of the lane's gradients over replicas
  kClipNorm,         // global norm: a barrier over all lanes of all replicas
  kOptimizerStep,
  kGatherParameters,  // sharded optimizer: receives the other replicas' new values
  kSyncTied,          // tied embeddings
};
std::string_view name_of(OperationKind kind);  // "forward", "backward_input", …

// Names one microbatch's pass through one stage: the key of operations and messages (the replica is
// implied by the context).
struct UnitKey {
  int module = -1;
  int stage = -1;
  int slot = -1;
  int group = -1;
  auto operator<=>(const UnitKey&) const = default;
};

// Forward, backward …: `unit` is the unit that runs. Send and receive: `unit` is the forward
// operation whose output (or output gradient) is sent. Step-wide: all fields of `unit` are -1.
struct Operation {
  OperationKind kind = OperationKind::kForward;
  UnitKey unit;
  int channel = -1;  // send, receive: index into ReplicaProgram::channels
  bool operator==(const Operation&) const = default;
};

inline bool is_forward(const Operation& operation) {
  return operation.kind == OperationKind::kForward;
}

// A first-in-first-out connection between two lanes for one edge of the stage graph and one
// direction.
struct Channel {
  int source_lane = 0;
  int target_lane = 0;
  StageRef producer;  // stage whose forward output is sent, or that receives its gradient
  StageRef consumer;  // the stage after it: same module, or the LLM's first stage
  bool gradient =
      false;  // false: activation producer → consumer; true: gradient consumer → producer
  bool operator==(const Channel&) const = default;
};

// A group of an LLM slot.
struct LlmGroupRef {
  int slot = 0;
  int group = 0;
  auto operator<=>(const LlmGroupRef&) const = default;
};

// One autograd graph: neighbouring parts of an encoder slot, or those items of an LLM
// slot whose samples end in the same slot. Without chunks an LLM slot is one group.
struct Group {
  std::vector<WorkItem> items;  // packing order; encoder groups: by LLM slot, then assignment order
  // Slots served, or an LLM group's own slot. Rising; a slot is repeated for each of its groups
  // that is served.
  std::vector<int> llm_slots;
  std::vector<int> part_sizes;  // items per entry of llm_slots
  // [stage] whether the group has a backward at each stage of its module: something is trainable
  // at this stage or nearer the input.
  std::vector<char> takes_backward;
  // The group within each of llm_slots; empty if it is always group 0.
  std::vector<int> llm_groups;
  // LLM groups, on every stage: those that hold the chunk just before one of this group's (whose
  // keys and values it reads) and just after one (which computes their gradients). Rising.
  std::vector<LlmGroupRef> earlier;
  std::vector<LlmGroupRef> later;

  // What an encoder group's part serves; parts are numbered like llm_slots.
  [[nodiscard]] LlmGroupRef served(std::size_t part) const {
    return {llm_slots[part], llm_groups.empty() ? 0 : llm_groups[part]};
  }
  bool operator==(const Group&) const = default;
};

struct ReplicaProgram {
  std::vector<std::vector<std::vector<Group>>>
      groups;  // [module][slot][group]; empty slots have none
  std::vector<Channel> channels;
  std::vector<std::vector<Operation>> lanes;  // [lane][position]
  bool operator==(const ReplicaProgram&) const = default;
};

struct Program {
  std::string schedule;
  std::vector<std::vector<StageRef>> lanes;  // stages per lane, from the plan
  std::vector<int> num_stages;               // [module]
  std::vector<ReplicaProgram> replicas;
  std::vector<std::string> module_names;  // [module], for messages; may be empty

  [[nodiscard]] int llm_module() const { return static_cast<int>(num_stages.size()) - 1; }
  [[nodiscard]] int num_lanes() const { return static_cast<int>(lanes.size()); }
  bool operator==(const Program&) const = default;
};

const Group& group_of(const ReplicaProgram& replica, const UnitKey& unit);

// Units that `unit`'s forward depends on: the previous stage, or for the LLM's first stage
// every encoder group (last stage) that serves it, by module, slot, group; then, on the same
// stage, the groups with earlier chunks of its samples, by slot.
std::vector<UnitKey> forward_inputs(const Program& program, int replica, const UnitKey& unit);

// Units that `unit`'s backward depends on: the next stage (same slot and group; none for
// the LLM's last stage), or for an encoder's last stage the LLM's first-stage groups it serves;
// then, on the same stage, the groups with later chunks of its samples, by slot.
std::vector<UnitKey> backward_inputs(const Program& program, int replica, const UnitKey& unit);

// "forward vision 1 slot 3 group 0"; sends and receives add " channel 2".
std::string to_string(const Program& program, const Operation& operation);

}  // namespace entrain
