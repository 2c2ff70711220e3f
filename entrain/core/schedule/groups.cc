#include "entrain/core/schedule/groups.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Per stage, whether something trainable lies at it or before it.
std::vector<char> backward_stages(const ModuleCosts& module) {
  std::vector<char> result;
  bool any = false;
  for (const StageCosts& stage : module.stages) {
    any = any || stage.trainable;
    result.push_back(any ? 1 : 0);
  }
  return result;
}

// Forward and backward of one unit over all stages; a stage without backward has zeros there.
nanoseconds unit_time(const ModuleCosts& module, int unit) {
  nanoseconds total{0};
  for (const StageCosts& stage : module.stages) {
    const OperationTimes& time = stage.units[at(unit)].time;
    total += time.forward + time.backward();
  }
  return total;
}

class EncoderGrouper {
 public:
  EncoderGrouper(const StepCosts& costs, int module, const std::vector<int>& llm_slot_of_sample)
      : costs_(costs),
        module_(module),
        llm_slot_of_sample_(llm_slot_of_sample),
        takes_backward_(backward_stages(costs.modules[at(module)])),
        one_graph_(takes_backward_.back() == 0) {
    for (const StageCosts& stage : costs.modules[at(module)].stages) {
      launch_ += stage.launch.forward + stage.launch.backward();
    }
  }

  [[nodiscard]] bool trainable() const { return !one_graph_; }

  std::vector<Group> groups_of(const Slot& slot, int slot_index) {
    std::vector<Group> groups;
    if (slot.empty()) {
      return groups;
    }
    sort_by_llm_slot(slot, slot_index);
    nanoseconds work{0};  // of the group being filled
    for (std::size_t begin = 0; begin < order_.size();) {
      const std::size_t end = end_of_part(begin);
      if (groups.empty() || !(one_graph_ || work < launch_)) {
        groups.emplace_back();
        groups.back().items.reserve(order_.size() - begin);
        groups.back().takes_backward = takes_backward_;
        work = nanoseconds{0};
      }
      append_part(slot, begin, end, groups.back(), work);
      begin = end;
    }
    if (work < launch_) {
      join_last(groups);
    }
    return groups;
  }

 private:
  static int llm_slot_of(std::uint64_t entry) { return static_cast<int>(entry >> 32U); }

  void sort_by_llm_slot(const Slot& slot, int slot_index) {
    order_.clear();
    for (std::size_t i = 0; i < slot.size(); ++i) {
      const int llm_slot = llm_slot_of_sample_[at(slot[i].sample)];
      ENTRAIN_INVARIANT(llm_slot >= slot_index,
                        fmt::format("sample {} has encoder work in slot {} but LLM slot {}",
                                    slot[i].sample,
                                    slot_index,
                                    llm_slot));
      order_.push_back(static_cast<std::uint64_t>(llm_slot) << 32U | i);
    }
    if (!std::is_sorted(order_.begin(), order_.end())) {
      std::sort(order_.begin(), order_.end());
    }
  }

  [[nodiscard]] std::size_t end_of_part(std::size_t begin) const {
    std::size_t end = begin + 1;
    while (end < order_.size() && llm_slot_of(order_[end]) == llm_slot_of(order_[begin])) {
      ++end;
    }
    return end;
  }

  void append_part(
      const Slot& slot, std::size_t begin, std::size_t end, Group& group, nanoseconds& work) const {
    const bool timed = !one_graph_ && launch_.count() > 0;
    for (std::size_t i = begin; i < end; ++i) {
      const WorkItem& item = slot[order_[i] & 0xffffffffU];
      group.items.push_back(item);
      if (timed && work < launch_) {
        work += unit_time(costs_.modules[at(module_)], costs_.unit_of(module_, item));
      }
    }
    group.llm_slots.push_back(llm_slot_of(order_[begin]));
    group.part_sizes.push_back(static_cast<int>(end - begin));
  }

  // Merges a tiny last group into the one before it if that does not delay it by more than a slot.
  static void join_last(std::vector<Group>& groups) {
    if (groups.size() < 2) {
      return;
    }
    Group& last = groups.back();
    Group& before = groups[groups.size() - 2];
    if (last.llm_slots.back() != before.llm_slots.back() + 1) {
      return;
    }
    before.items.insert(before.items.end(), last.items.begin(), last.items.end());
    before.llm_slots.push_back(last.llm_slots.back());
    before.part_sizes.push_back(last.part_sizes.back());
    groups.pop_back();
  }

  const StepCosts& costs_;
  int module_;
  const std::vector<int>& llm_slot_of_sample_;
  std::vector<char> takes_backward_;  // [stage]
  bool one_graph_;                    // nothing trainable: one group a slot
  nanoseconds launch_{0};             // forward and backward, all stages
  std::vector<std::uint64_t> order_;  // scratch: LLM slot << 32 | position in the slot
};

std::vector<int> llm_slots_of_samples(const ModuleSlots& llm_slots, int num_samples) {
  std::vector<int> result(at(num_samples), -1);
  for (std::size_t slot = 0; slot < llm_slots.size(); ++slot) {
    for (const WorkItem& item : llm_slots[slot]) {
      if (item.is_chunk()) {
        throw InvalidInput(fmt::format(
            "slot {} holds tokens [{}, {}) of sample {}; this schedule takes whole samples only",
            slot,
            item.token_begin,
            item.token_end,
            item.sample));
      }
      result[at(item.sample)] = static_cast<int>(slot);
    }
  }
  return result;
}

}  // namespace

std::vector<ModuleGroups> build_groups(const ReplicaAssignment& replica, const StepCosts& costs) {
  const int llm = costs.llm_module();
  const ModuleSlots& llm_slots = replica.modules[at(llm)];
  const std::vector<int> llm_slot_of_sample = llm_slots_of_samples(llm_slots, costs.num_samples);
  std::vector<ModuleGroups> result(at(llm + 1));
  std::vector<char> trainable_features(llm_slots.size(), 0);
  for (int module = 0; module < llm; ++module) {
    EncoderGrouper grouper(costs, module, llm_slot_of_sample);
    const ModuleSlots& slots = replica.modules[at(module)];
    result[at(module)].reserve(slots.size());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      result[at(module)].push_back(grouper.groups_of(slots[slot], static_cast<int>(slot)));
      if (grouper.trainable()) {
        for (const Group& group : result[at(module)].back()) {
          for (const int llm_slot : group.llm_slots) {
            trainable_features[at(llm_slot)] = 1;
          }
        }
      }
    }
  }
  const std::vector<char> text_backward = backward_stages(costs.modules[at(llm)]);
  const std::vector<char> every_stage(text_backward.size(), 1);
  result[at(llm)].resize(llm_slots.size());
  for (std::size_t slot = 0; slot < llm_slots.size(); ++slot) {
    if (llm_slots[slot].empty()) {
      continue;
    }
    Group& group = result[at(llm)][slot].emplace_back();
    group.items = llm_slots[slot];
    group.llm_slots = {static_cast<int>(slot)};
    group.part_sizes = {static_cast<int>(group.items.size())};
    group.takes_backward = trainable_features[slot] != 0 ? every_stage : text_backward;
  }
  return result;
}

}  // namespace entrain
