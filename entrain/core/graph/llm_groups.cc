#include "entrain/core/graph/llm_groups.h"

#include <algorithm>
#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr int kNone = -1;
constexpr int kFirstCut = -2;

void sort_unique(std::vector<LlmGroupRef>& refs) {
  std::sort(refs.begin(), refs.end());
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
}

}  // namespace

LlmGroups::LlmGroups(const ModuleSlots& slots, const StepCosts& costs)
    : slots_(slots),
      costs_(costs),
      groups_(slots.size()),
      group_of_sample_(at(costs.num_samples), kNone),
      has_chunks_(slots.size(), 0) {
  find_samples();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    add_slot(static_cast<int>(slot));
  }
  link_chunks();
}

void LlmGroups::find_samples() {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    for (const WorkItem& item : slots_[slot]) {
      if (!item.is_chunk()) {
        continue;
      }
      has_chunks_[slot] = 1;
      int& entry = group_of_sample_[at(item.sample)];
      if (entry == kNone) {
        entry = kFirstCut - static_cast<int>(cut_.size());
        cut_.emplace_back();
      }
      cut_[at(kFirstCut - entry)].push_back({item.token_begin, static_cast<int>(slot), kNone});
    }
  }
}

int LlmGroups::last_slot(const WorkItem& item, int slot) const {
  return item.is_chunk() ? cut_[at(kFirstCut - group_of_sample_[at(item.sample)])].back().slot
                         : slot;
}

void LlmGroups::add_slot(int slot) {
  const Slot& items = slots_[at(slot)];
  if (items.empty()) {
    return;
  }
  if (has_chunks_[at(slot)] == 0) {
    add_group(slot, items);
    return;
  }
  Slot sorted = items;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const WorkItem& a, const WorkItem& b) {
    return last_slot(a, slot) < last_slot(b, slot);
  });
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const int last = last_slot(*begin, slot);
    const auto end = std::find_if(
        begin, sorted.end(), [&](const WorkItem& item) { return last_slot(item, slot) != last; });
    add_group(slot, {begin, end});
    begin = end;
  }
}

void LlmGroups::add_group(int slot, std::vector<WorkItem> items) {
  const int number = num_groups();
  refs_.push_back({slot, static_cast<int>(groups_[at(slot)].size())});
  release_slots_.push_back(last_slot(items.front(), slot));
  Group& group = groups_[at(slot)].emplace_back();
  group.items = std::move(items);
  group.llm_slots = {slot};
  group.part_sizes = {static_cast<int>(group.items.size())};
  for (const WorkItem& item : group.items) {
    int& entry = group_of_sample_[at(item.sample)];
    if (!item.is_chunk()) {
      entry = number;
      continue;
    }
    for (Chunk& chunk : cut_[at(kFirstCut - entry)]) {
      if (chunk.slot == slot) {
        chunk.group = number;
      }
    }
  }
}

void LlmGroups::link_chunks() {
  const auto group = [&](const LlmGroupRef& ref) -> Group& {
    return groups_[at(ref.slot)][at(ref.group)];
  };
  for (const std::vector<Chunk>& chunks : cut_) {
    for (std::size_t i = 1; i < chunks.size(); ++i) {
      const LlmGroupRef before = ref(chunks[i - 1].group);
      const LlmGroupRef after = ref(chunks[i].group);
      group(before).later.push_back(after);
      group(after).earlier.push_back(before);
    }
  }
  if (!cut_.empty()) {
    for (const LlmGroupRef& each : refs_) {
      sort_unique(group(each).earlier);
      sort_unique(group(each).later);
    }
  }
}

int LlmGroups::taker(int encoder, const WorkItem& segment) const {
  const int entry = group_of_sample_[at(segment.sample)];
  if (entry >= kNone) {
    return entry;
  }
  const std::vector<Chunk>& chunks = cut_[at(kFirstCut - entry)];
  const std::int64_t token =
      first_feature_token(costs_.work[at(segment.sample)], encoder, segment.segment);
  int result = chunks.front().group;
  for (const Chunk& chunk : chunks) {
    result = chunk.token_begin <= token ? chunk.group : result;
  }
  return result;
}

}  // namespace entrain
