#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/validate.h"

namespace entrain::validation {
namespace {

// Where the LLM runs a sample, or one of its chunks.
struct LlmPlace {
  int slot = 0;
  std::int64_t token_begin = 0;
};

// One replica's slots seen from its samples.
struct Samples {
  std::vector<std::vector<LlmPlace>> places;  // [sample] by slot; empty: not in this replica
  // [LLM slot] slots in which its samples end, rising, each once: one group of the slot each.
  std::vector<std::vector<int>> ends;
  // Groups that take features of an encoder that is trained, or follow such a group's chunks.
  std::vector<std::vector<char>> trained;  // [LLM slot][group]
};

bool any_trainable(const ModuleCosts& module) {
  return std::any_of(module.stages.begin(), module.stages.end(), [](const StageCosts& stage) {
    return stage.trainable;
  });
}

// The group of `slot` whose samples end with this one.
LlmGroupRef group_of_sample(const Samples& samples, int sample, int slot) {
  const std::vector<int>& ends = samples.ends[at(slot)];
  const int end = samples.places[at(sample)].back().slot;
  return {slot, static_cast<int>(std::find(ends.begin(), ends.end(), end) - ends.begin())};
}

// The LLM group that an item's module work belongs to or is for.
LlmGroupRef taker_of(
    const Subject& subject, const Samples& samples, int module, const WorkItem& item, int slot) {
  if (module == subject.program.llm_module()) {
    return group_of_sample(samples, item.sample, slot);
  }
  const std::vector<LlmPlace>& places = samples.places[at(item.sample)];
  int llm_slot = places.front().slot;
  if (places.size() > 1) {
    const std::int64_t token =
        first_feature_token(subject.costs.work[at(item.sample)], module, item.segment);
    for (const LlmPlace& place : places) {
      llm_slot = place.token_begin <= token ? place.slot : llm_slot;
    }
  }
  return group_of_sample(samples, item.sample, llm_slot);
}

void mark_trained(const Subject& subject, const ReplicaAssignment& replica, Samples& samples) {
  const int llm = subject.program.llm_module();
  for (const std::vector<int>& ends : samples.ends) {
    samples.trained.emplace_back(ends.size(), 0);
  }
  for (int module = 0; module < llm; ++module) {
    const bool trained = any_trainable(subject.costs.modules[at(module)]);
    for (const Slot& slot : replica.modules[at(module)]) {
      for (const WorkItem& item : slot) {
        if (samples.places[at(item.sample)].empty()) {
          throw InvalidInput(
              fmt::format("sample {} has encoder work but no LLM slot", item.sample));
        }
        const LlmGroupRef taker = taker_of(subject, samples, module, item, -1);
        if (trained) {
          samples.trained[at(taker.slot)][at(taker.group)] = 1;
        }
      }
    }
  }
  // A chunk's loss reaches the keys and values of those before it: by rising slot.
  for (int slot = 0; slot < replica.num_slots; ++slot) {
    for (const WorkItem& item : replica.modules[at(llm)][at(slot)]) {
      const LlmGroupRef group = group_of_sample(samples, item.sample, slot);
      for (const LlmPlace& place : samples.places[at(item.sample)]) {
        const LlmGroupRef other = group_of_sample(samples, item.sample, place.slot);
        if (place.slot < slot && samples.trained[at(other.slot)][at(other.group)] != 0) {
          samples.trained[at(slot)][at(group.group)] = 1;
        }
      }
    }
  }
}

Samples samples_of(const Subject& subject, const ReplicaAssignment& replica) {
  const ModuleSlots& llm_slots = replica.modules[at(subject.program.llm_module())];
  Samples result;
  result.places.resize(at(subject.costs.num_samples));
  for (std::size_t slot = 0; slot < llm_slots.size(); ++slot) {
    for (const WorkItem& item : llm_slots[slot]) {
      result.places[at(item.sample)].push_back({static_cast<int>(slot), item.token_begin});
    }
  }
  for (const Slot& slot : llm_slots) {
    std::vector<int>& ends = result.ends.emplace_back();
    for (const WorkItem& item : slot) {
      ends.push_back(result.places[at(item.sample)].back().slot);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  mark_trained(subject, replica, result);
  return result;
}

class SlotChecker {
 public:
  SlotChecker(const Subject& subject, const Samples& samples, int replica, int module, int slot)
      : subject_(subject), samples_(samples), replica_(replica), module_(module), slot_(slot) {}

  void check() const {
    const Slot& assigned =
        subject_.assignment.replicas[at(replica_)].modules[at(module_)][at(slot_)];
    const auto& groups = subject_.program.replicas[at(replica_)].groups[at(module_)][at(slot_)];
    if (is_llm() && groups.size() != samples_.ends[at(slot_)].size()) {
      fail(-1,
           fmt::format("{} groups, but its samples end in {} slots",
                       groups.size(),
                       samples_.ends[at(slot_)].size()));
    }
    Slot held;
    LlmGroupRef last{-1, -1};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto index = static_cast<int>(g);
      check_group(groups[g], index);
      const LlmGroupRef first = taker(groups[g].items.front());
      if (first <= last) {
        fail(index,
             fmt::format("serves LLM slot {} group {} after the group before it served slot {} "
                         "group {}",
                         first.slot,
                         first.group,
                         last.slot,
                         last.group));
      }
      last = taker(groups[g].items.back());
      if (is_llm() && last != first) {
        fail(index, "holds items whose samples end in different slots");
      }
      held.insert(held.end(), groups[g].items.begin(), groups[g].items.end());
    }
    if (held != expected_items(assigned)) {
      fail(-1,
           fmt::format("the groups do not hold the {} assigned items by LLM group in packing order",
                       assigned.size()));
    }
  }

 private:
  [[nodiscard]] bool is_llm() const { return module_ == subject_.program.llm_module(); }

  [[nodiscard]] LlmGroupRef taker(const WorkItem& item) const {
    return taker_of(subject_, samples_, module_, item, slot_);
  }

  // The slot's items as its groups must hold them, one after another.
  [[nodiscard]] Slot expected_items(const Slot& slot) const {
    Slot items = slot;
    std::stable_sort(items.begin(), items.end(), [&](const WorkItem& a, const WorkItem& b) {
      return taker(a) < taker(b);
    });
    return items;
  }

  [[noreturn]] void fail(int group, const std::string& what) const {
    throw InvalidInput(fmt::format("replica {} {} slot {}{}: {}",
                                   replica_,
                                   subject_.plan.modules[at(module_)].name,
                                   slot_,
                                   group < 0 ? "" : fmt::format(" group {}", group),
                                   what));
  }

  void check_group(const Group& group, int index) const {
    if (group.items.empty()) {
      fail(index, "an empty group");
    }
    Group expected;  // what its items say
    std::vector<LlmGroupRef> parts;
    for (const WorkItem& item : group.items) {
      check_item(item, index);
      const LlmGroupRef of_item = taker(item);
      if (parts.empty() || parts.back() != of_item) {
        parts.push_back(of_item);
        expected.llm_slots.push_back(of_item.slot);
        expected.part_sizes.push_back(0);
      }
      ++expected.part_sizes.back();
      if (is_llm()) {
        add_links(item, expected);
      }
    }
    const bool plain = std::all_of(
        parts.begin(), parts.end(), [](const LlmGroupRef& part) { return part.group == 0; });
    for (const LlmGroupRef& part : parts) {
      if (!is_llm() && !plain) {
        expected.llm_groups.push_back(part.group);
      }
    }
    if (group.llm_slots != expected.llm_slots || group.part_sizes != expected.part_sizes ||
        group.llm_groups != expected.llm_groups) {
      fail(index, "llm_slots, part_sizes or llm_groups do not describe its items");
    }
    for (std::vector<LlmGroupRef>* links : {&expected.earlier, &expected.later}) {
      std::sort(links->begin(), links->end());
      links->erase(std::unique(links->begin(), links->end()), links->end());
    }
    if (group.earlier != expected.earlier || group.later != expected.later) {
      fail(index, "its links are not those of its samples' chunks");
    }
    check_backward(group, index);
  }

  // An item in no slot may be anything.
  void check_item(const WorkItem& item, int index) const {
    if (item.sample < 0 || item.sample >= subject_.costs.num_samples ||
        samples_.places[at(item.sample)].empty()) {
      fail(index, fmt::format("unknown sample {}", item.sample));
    }
    if (!is_llm()) {
      const std::vector<int>& first = subject_.costs.modules[at(module_)].first_unit;
      if (item.segment < 0 || item.segment >= first[at(item.sample + 1)] - first[at(item.sample)]) {
        fail(index, fmt::format("unknown segment {} of sample {}", item.segment, item.sample));
      }
    }
  }

  // Links that a chunk in this slot makes: its sample's slots just before and after this one.
  void add_links(const WorkItem& item, Group& expected) const {
    const std::vector<LlmPlace>& places = samples_.places[at(item.sample)];
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      const int before = places[i].slot;
      const int after = places[i + 1].slot;
      if (after == slot_) {
        expected.earlier.push_back(group_of_sample(samples_, item.sample, before));
      }
      if (before == slot_) {
        expected.later.push_back(group_of_sample(samples_, item.sample, after));
      }
    }
  }

  void check_backward(const Group& group, int index) const {
    const ModuleCosts& module = subject_.costs.modules[at(module_)];
    bool backward = is_llm() && samples_.trained[at(slot_)][at(index)] != 0;
    if (group.takes_backward.size() != module.stages.size()) {
      fail(index, "takes_backward has not one entry a stage");
    }
    for (std::size_t stage = 0; stage < module.stages.size(); ++stage) {
      backward = backward || module.stages[stage].trainable;
      if ((group.takes_backward[stage] != 0) != backward) {
        fail(index,
             fmt::format("stage {} {} backward, but takes_backward says otherwise",
                         stage,
                         backward ? "takes part in" : "has no"));
      }
    }
  }

  const Subject& subject_;
  const Samples& samples_;
  int replica_;
  int module_;
  int slot_;
};

}  // namespace

void check_groups(const Subject& subject, int replica) {
  const ReplicaAssignment& assigned = subject.assignment.replicas[at(replica)];
  const auto& groups = subject.program.replicas[at(replica)].groups;
  if (groups.size() != assigned.modules.size()) {
    throw InvalidInput(fmt::format("replica {}: groups of {} modules, the assignment has {}",
                                   replica,
                                   groups.size(),
                                   assigned.modules.size()));
  }
  const Samples samples = samples_of(subject, assigned);
  for (std::size_t module = 0; module < groups.size(); ++module) {
    if (groups[module].size() != assigned.modules[module].size()) {
      throw InvalidInput(fmt::format("replica {} {}: {} slots, the assignment has {}",
                                     replica,
                                     subject.plan.modules[module].name,
                                     groups[module].size(),
                                     assigned.modules[module].size()));
    }
    for (std::size_t slot = 0; slot < groups[module].size(); ++slot) {
      SlotChecker(subject, samples, replica, static_cast<int>(module), static_cast<int>(slot))
          .check();
    }
  }
}

}  // namespace entrain::validation
