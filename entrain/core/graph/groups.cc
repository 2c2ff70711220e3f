#include "entrain/core/graph/groups.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Per stage, whether something trainable is at it or before it.
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
  EncoderGrouper(const StepCosts& costs, int module, const LlmGroups& llm_groups)
      : costs_(costs),
        module_(module),
        llm_groups_(llm_groups),
        takes_backward_(backward_stages(costs.modules[at(module)])) {
    for (const StageCosts& stage : costs.modules[at(module)].stages) {
      launch_ += stage.launch.forward + stage.launch.backward();
    }
  }

  // Marks the LLM groups that take features to be trained in trained_features [number].
  std::vector<Group> groups_of(const Slot& slot,
                               int slot_index,
                               std::vector<char>& trained_features) {
    std::vector<Group> groups;
    if (slot.empty()) {
      return groups;
    }
    sort_by_taker(slot, slot_index);
    nanoseconds work{0};  // of the group being filled
    int released = 0;     // its last part
    int released_before = 0;
    for (std::size_t begin = 0; begin < order_.size();) {
      const std::size_t end = end_of_part(begin);
      const int release = llm_groups_.release_slot(taker_of(order_[begin]));
      const bool join = work < launch_ && release >= released;
      if (groups.empty() || !join) {
        groups.emplace_back();
        groups.back().items.reserve(order_.size() - begin);
        groups.back().takes_backward = takes_backward_;
        work = nanoseconds{0};
        released_before = released;
        released = release;
      }
      append_part(slot, begin, end, groups.back(), work);
      if (takes_backward_.back() != 0) {
        trained_features[at(taker_of(order_[begin]))] = 1;
      }
      released = std::max(released, release);
      begin = end;
    }
    if (work < launch_ && released <= released_before + 1) {
      join_last(groups);
    }
    return groups;
  }

 private:
  static int taker_of(std::uint64_t entry) { return static_cast<int>(entry >> 32U); }

  void sort_by_taker(const Slot& slot, int slot_index) {
    order_.clear();
    for (std::size_t i = 0; i < slot.size(); ++i) {
      const int taker = llm_groups_.taker(module_, slot[i]);
      const int llm_slot = taker < 0 ? -1 : llm_groups_.ref(taker).slot;
      ENTRAIN_INVARIANT(llm_slot >= slot_index,
                        fmt::format("sample {} has encoder work in slot {} but LLM slot {}",
                                    slot[i].sample,
                                    slot_index,
                                    llm_slot));
      order_.push_back(static_cast<std::uint64_t>(taker) << 32U | i);
    }
    if (!std::is_sorted(order_.begin(), order_.end())) {
      std::sort(order_.begin(), order_.end());
    }
  }

  [[nodiscard]] std::size_t end_of_part(std::size_t begin) const {
    std::size_t end = begin + 1;
    while (end < order_.size() && taker_of(order_[end]) == taker_of(order_[begin])) {
      ++end;
    }
    return end;
  }

  void append_part(
      const Slot& slot, std::size_t begin, std::size_t end, Group& group, nanoseconds& work) const {
    for (std::size_t i = begin; i < end; ++i) {
      const WorkItem& item = slot[order_[i] & 0xffffffffU];
      group.items.push_back(item);
      if (work < launch_) {
        work += unit_time(costs_.modules[at(module_)], costs_.unit_of(module_, item));
      }
    }
    add_part(llm_groups_.ref(taker_of(order_[begin])), static_cast<int>(end - begin), group);
  }

  static void add_part(const LlmGroupRef& served, int num_items, Group& group) {
    if (served.group != 0 && group.llm_groups.empty()) {
      group.llm_groups.assign(group.llm_slots.size(), 0);
    }
    if (served.group != 0 || !group.llm_groups.empty()) {
      group.llm_groups.push_back(served.group);
    }
    group.llm_slots.push_back(served.slot);
    group.part_sizes.push_back(num_items);
  }

  static void join_last(std::vector<Group>& groups) {
    if (groups.size() < 2) {
      return;
    }
    const Group& last = groups.back();
    Group& before = groups[groups.size() - 2];
    before.items.insert(before.items.end(), last.items.begin(), last.items.end());
    for (std::size_t part = 0; part < last.llm_slots.size(); ++part) {
      add_part(last.served(part), last.part_sizes[part], before);
    }
    groups.pop_back();
  }

  const StepCosts& costs_;
  int module_;
  const LlmGroups& llm_groups_;
  std::vector<char> takes_backward_;  // [stage]
  nanoseconds launch_{0};             // forward and backward, all stages
  std::vector<std::uint64_t> order_;  // scratch: number of the taker << 32 | position in the slot
};

// Fills takes_backward of the LLM's groups, which are listed by slot: earlier chunks come first.
void find_llm_backwards(const ModuleCosts& llm,
                        const LlmGroups& llm_groups,
                        const std::vector<char>& trained_features,
                        ModuleGroups& groups) {
  const std::vector<char> text_backward = backward_stages(llm);
  for (int number = 0; number < llm_groups.num_groups(); ++number) {
    const LlmGroupRef ref = llm_groups.ref(number);
    Group& group = groups[at(ref.slot)][at(ref.group)];
    bool reached = trained_features[at(number)] != 0;
    for (const LlmGroupRef& earlier : group.earlier) {
      // Only features can make a first stage take part that has nothing trainable.
      reached = reached || groups[at(earlier.slot)][at(earlier.group)].takes_backward[0] != 0;
    }
    group.takes_backward = reached ? std::vector<char>(text_backward.size(), 1) : text_backward;
  }
}

}  // namespace

std::vector<ModuleGroups> build_groups(const ReplicaAssignment& replica, const StepCosts& costs) {
  const int llm = costs.llm_module();
  LlmGroups llm_groups(replica.modules[at(llm)], costs);
  std::vector<ModuleGroups> result(at(llm + 1));
  result[at(llm)] = llm_groups.take_groups();
  std::vector<char> trained_features(at(llm_groups.num_groups()), 0);
  for (int module = 0; module < llm; ++module) {
    EncoderGrouper grouper(costs, module, llm_groups);
    const ModuleSlots& slots = replica.modules[at(module)];
    result[at(module)].reserve(slots.size());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      result[at(module)].push_back(
          grouper.groups_of(slots[slot], static_cast<int>(slot), trained_features));
    }
  }
  find_llm_backwards(costs.modules[at(llm)], llm_groups, trained_features, result[at(llm)]);
  return result;
}

}  // namespace entrain
