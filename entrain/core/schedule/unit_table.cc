#include "entrain/core/schedule/unit_table.h"

#include <algorithm>

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Counting sort of the first `num_groups` groups by `slot_of`.
template <class SlotOf>
GroupsBySlot by_slot(const std::vector<GroupEntry>& groups,
                     int num_groups,
                     int num_slots,
                     SlotOf slot_of) {
  GroupsBySlot result;
  result.begin.assign(at(num_slots + 1), 0);
  result.groups.resize(at(num_groups));
  for (int i = 0; i < num_groups; ++i) {
    ++result.begin[at(slot_of(groups[at(i)]) + 1)];
  }
  for (int slot = 0; slot < num_slots; ++slot) {
    result.begin[at(slot + 1)] += result.begin[at(slot)];
  }
  std::vector<int> next(result.begin.begin(), result.begin.end() - 1);
  for (int i = 0; i < num_groups; ++i) {
    result.groups[at(next[at(slot_of(groups[at(i)]))]++)] = i;
  }
  return result;
}

}  // namespace

UnitTable::UnitTable(const std::vector<ModuleGroups>& groups, const std::vector<int>& num_stages)
    : num_stages_(num_stages) {
  num_slots_ = groups.empty() ? 0 : static_cast<int>(groups.back().size());
  first_stage_.push_back(0);
  int encoder_groups = 0;
  for (int module = 0; module < num_modules(); ++module) {
    if (module == llm_module()) {
      encoder_groups = static_cast<int>(groups_.size());
    }
    first_stage_.push_back(first_stage_.back() + num_stages[at(module)]);
    const ModuleGroups& slots = groups[at(module)];
    for (int slot = 0; slot < num_slots_; ++slot) {
      first_group_.push_back(static_cast<int>(groups_.size()));
      for (std::size_t g = 0; g < slots[at(slot)].size(); ++g) {
        const Group& group = slots[at(slot)][g];
        const auto first = std::find(group.takes_backward.begin(), group.takes_backward.end(), 1);
        groups_.push_back({module,
                           slot,
                           static_cast<int>(g),
                           group.llm_slots.front(),
                           group.llm_slots.back(),
                           static_cast<int>(first - group.takes_backward.begin())});
        first_unit_.push_back(num_units_);
        num_units_ += num_stages[at(module)];
      }
    }
    first_group_.push_back(static_cast<int>(groups_.size()));
  }
  opened_by_ = by_slot(groups_, encoder_groups, num_slots_, [](const GroupEntry& group) {
    return group.first_llm_slot;
  });
  released_by_ = by_slot(groups_, encoder_groups, num_slots_, [](const GroupEntry& group) {
    return group.last_llm_slot;
  });
}

}  // namespace entrain
