#include "entrain/core/schedule/unit_table.h"

#include <algorithm>

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Counting sort of the groups numbered [first, end) by `slot_of`.
template <class SlotOf>
GroupsBySlot by_slot(
    const std::vector<GroupEntry>& groups, int first, int end, int num_slots, SlotOf slot_of) {
  GroupsBySlot result;
  result.begin.assign(at(num_slots + 1), 0);
  result.groups.resize(at(end - first));
  for (int i = first; i < end; ++i) {
    ++result.begin[at(slot_of(groups[at(i)]) + 1)];
  }
  for (int slot = 0; slot < num_slots; ++slot) {
    result.begin[at(slot + 1)] += result.begin[at(slot)];
  }
  std::vector<int> next(result.begin.begin(), result.begin.end() - 1);
  for (int i = first; i < end; ++i) {
    result.groups[at(next[at(slot_of(groups[at(i)]))]++)] = i;
  }
  return result;
}

}  // namespace

UnitTable::UnitTable(const std::vector<ModuleGroups>& groups, const std::vector<int>& num_stages)
    : num_stages_(num_stages) {
  num_slots_ = groups.empty() ? 0 : static_cast<int>(groups.back().size());
  add_groups(groups);
  find_releases(groups);
  sort_by_release();
}

void UnitTable::add_groups(const std::vector<ModuleGroups>& groups) {
  first_stage_.push_back(0);
  for (int module = 0; module < num_modules(); ++module) {
    first_stage_.push_back(first_stage_.back() + num_stages_[at(module)]);
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
                           static_cast<int>(first - group.takes_backward.begin()),
                           slot,
                           slot});
        first_unit_.push_back(num_units_);
        num_units_ += num_stages_[at(module)];
      }
    }
    first_group_.push_back(static_cast<int>(groups_.size()));
  }
}

void UnitTable::find_releases(const std::vector<ModuleGroups>& groups) {
  // The LLM's groups first, later ones before those they follow.
  for (std::size_t i = groups_.size(); i > 0; --i) {
    GroupEntry& entry = groups_[i - 1];
    const Group& group = groups[at(entry.module)][at(entry.slot)][at(entry.group)];
    if (entry.module == llm_module()) {
      for (const LlmGroupRef& later : group.later) {
        entry.release_slot =
            std::max(entry.release_slot, groups_[at(llm_group(later))].release_slot);
      }
      continue;
    }
    entry.release_slot = -1;
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      const GroupEntry& served = groups_[at(llm_group(group.served(part)))];
      if (served.release_slot > entry.release_slot) {
        entry.release_slot = served.release_slot;
        entry.completing_slot = served.slot;  // parts come by rising slot
      }
    }
  }
}

void UnitTable::sort_by_release() {
  const int first_llm_group = first_group(llm_module(), 0);
  const auto end = static_cast<int>(groups_.size());
  const auto first_slot = [](const GroupEntry& group) { return group.first_llm_slot; };
  const auto release_slot = [](const GroupEntry& group) { return group.release_slot; };
  opened_by_ = by_slot(groups_, 0, first_llm_group, num_slots_, first_slot);
  released_by_ = by_slot(groups_, 0, first_llm_group, num_slots_, release_slot);
  llm_released_by_ = by_slot(groups_, first_llm_group, end, num_slots_, release_slot);
  const auto completed_before = [this](int a, int b) {
    return entry(a).completing_slot > entry(b).completing_slot;
  };
  for (GroupsBySlot* lists : {&released_by_, &llm_released_by_}) {
    for (int slot = 0; slot < num_slots_; ++slot) {
      const auto begin = lists->groups.begin() + lists->begin[at(slot)];
      const auto last = lists->groups.begin() + lists->begin[at(slot + 1)];
      if (!std::is_sorted(begin, last, completed_before)) {
        std::stable_sort(begin, last, completed_before);
      }
    }
  }
}

}  // namespace entrain
