// Flat numbers for a replica's stages, groups and units, so that builders index arrays.
//
// Read first: UnitTable. A *unit* is one group on one stage of its module.
#pragma once

#include <vector>

#include "entrain/core/schedule/groups.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// One group as the order rules see it.
struct GroupEntry {
  int module = 0;
  int slot = 0;
  int group = 0;
  int first_llm_slot = 0;        // served; an LLM group's own slot
  int last_llm_slot = 0;         // served
  int first_backward_stage = 0;  // lowest stage with a backward; the module's num_stages if none
  // The LLM slot whose turn releases the group's backward. An LLM group's: its own, or the one in
  // which its chunks' samples end; an encoder group's: the latest of the LLM groups it serves.
  int release_slot = 0;
  // The lowest slot among the LLM groups with that release that it serves: as backward runs in
  // falling slot order, it completes the gradient. An LLM group's own slot.
  int completing_slot = 0;
};

// Lists of group numbers by LLM slot, in one array.
struct GroupsBySlot {
  std::vector<int> begin;   // [num_slots + 1]
  std::vector<int> groups;  // numbers of groups
};

class UnitTable {
 public:
  // Cost  O(groups + modules × slots).
  UnitTable(const std::vector<ModuleGroups>& groups, const std::vector<int>& num_stages);

  [[nodiscard]] int num_modules() const { return static_cast<int>(num_stages_.size()); }
  [[nodiscard]] int llm_module() const { return num_modules() - 1; }
  [[nodiscard]] int num_slots() const { return num_slots_; }
  [[nodiscard]] int num_stages(int module) const {
    return num_stages_[static_cast<std::size_t>(module)];
  }
  [[nodiscard]] int num_units() const { return num_units_; }
  // Stages of all modules in module order.
  [[nodiscard]] int stage_number(int module, int stage) const {
    return first_stage_[static_cast<std::size_t>(module)] + stage;
  }
  [[nodiscard]] int num_all_stages() const { return first_stage_.back(); }

  [[nodiscard]] const std::vector<GroupEntry>& groups() const { return groups_; }
  [[nodiscard]] const GroupEntry& entry(int group) const {
    return groups_[static_cast<std::size_t>(group)];
  }
  // Groups of one module's slot: numbers [first_group(m, s), first_group(m, s + 1)).
  [[nodiscard]] int first_group(int module, int slot) const {
    return first_group_[static_cast<std::size_t>(module * (num_slots_ + 1) + slot)];
  }
  [[nodiscard]] int group_number(const UnitKey& unit) const {
    return first_group(unit.module, unit.slot) + unit.group;
  }
  [[nodiscard]] int llm_group(const LlmGroupRef& ref) const {
    return first_group(llm_module(), ref.slot) + ref.group;
  }
  [[nodiscard]] int unit_number(int group, int stage) const {
    return first_unit_[static_cast<std::size_t>(group)] + stage;
  }
  [[nodiscard]] UnitKey key(int group, int stage) const {
    const GroupEntry& of = entry(group);
    return {of.module, stage, of.slot, of.group};
  }

  // Encoder groups by the first LLM slot they serve, rising within a slot.
  [[nodiscard]] const GroupsBySlot& opened_by() const { return opened_by_; }
  // Encoder groups by release_slot, within a slot in the order in which their gradients are
  // completed: falling completing_slot, then rising number.
  [[nodiscard]] const GroupsBySlot& released_by() const { return released_by_; }
  // LLM groups by release_slot, within a slot by falling slot: the order that chunks need. Without
  // chunks every slot has its own group.
  [[nodiscard]] const GroupsBySlot& llm_released_by() const { return llm_released_by_; }

 private:
  void add_groups(const std::vector<ModuleGroups>& groups);
  void find_releases(const std::vector<ModuleGroups>& groups);
  void sort_by_release();

  std::vector<int> num_stages_;   // [module]
  std::vector<int> first_stage_;  // [module + 1]
  int num_slots_ = 0;
  int num_units_ = 0;
  std::vector<GroupEntry> groups_;  // by module, slot, group
  std::vector<int> first_unit_;     // [group]
  std::vector<int> first_group_;    // [module × (num_slots + 1)]
  GroupsBySlot opened_by_;
  GroupsBySlot released_by_;
  GroupsBySlot llm_released_by_;
};

}  // namespace entrain
