// The groups of the LLM's slots, and which group takes an encoder segment's features.
//
// Read first: LlmGroups. The rule: items of a slot whose samples end in the same slot are one
// group; groups are in rising order of that slot. Whole samples and last chunks end in the slot
// itself and are the first group, so an LLM slot is one group unless a chunk in it is followed by
// another; a sample cut in two costs one more launch per stage.
//
// All groups of one sample's chunks end in the same slot. So links go from lower slots to higher
// ones of the same end and cannot close a cycle, and no group waits longer than until the slot in
// which its own samples end.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/program.h"

namespace entrain {

using ModuleGroups = std::vector<std::vector<Group>>;  // [slot][group]

// Groups are numbered by slot, then index.
class LlmGroups {
 public:
  // Requires  LLM slots of a valid assignment; `slots` and `costs` outlive the object.
  // Cost      O(items), and O(n log n) for slots with chunks.
  LlmGroups(const ModuleSlots& slots, const StepCosts& costs);

  [[nodiscard]] int num_groups() const { return static_cast<int>(refs_.size()); }
  [[nodiscard]] LlmGroupRef ref(int number) const {
    return refs_[static_cast<std::size_t>(number)];
  }
  // The slot whose turn releases the group's backward: the one in which its samples end.
  [[nodiscard]] int release_slot(int number) const {
    return release_slots_[static_cast<std::size_t>(number)];
  }
  // Number of the group that takes a segment's features: that of its whole sample, or of the chunk
  // that holds first_feature_token(). -1 when the sample is in none of the slots.
  [[nodiscard]] int taker(int encoder, const WorkItem& segment) const;

  // The groups with all but takes_backward; moved out.
  [[nodiscard]] ModuleGroups take_groups() { return std::move(groups_); }

 private:
  struct Chunk {
    std::int64_t token_begin = 0;
    int slot = 0;
    int group = -1;  // number
  };

  void find_samples();
  void add_slot(int slot);
  void add_group(int slot, std::vector<WorkItem> items);
  void link_chunks();
  [[nodiscard]] int last_slot(const WorkItem& item, int slot) const;

  const ModuleSlots& slots_;
  const StepCosts& costs_;
  ModuleGroups groups_;
  std::vector<LlmGroupRef> refs_;   // [number]
  std::vector<int> release_slots_;  // [number]
  // [sample] number of its group, kNone, or, for a cut one, kFirstCut minus its index into cut_.
  std::vector<int> group_of_sample_;
  std::vector<std::vector<Chunk>> cut_;  // chunks of cut samples in order
  std::vector<char> has_chunks_;         // [slot]
};

}  // namespace entrain
