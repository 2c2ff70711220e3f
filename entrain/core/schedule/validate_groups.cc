#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/validate.h"

namespace entrain::validation {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// One replica's slots seen from its samples.
struct Samples {
  std::vector<int> llm_slot;           // [sample]; -1: not in this replica
  std::vector<char> trained_features;  // [LLM slot]: features of an encoder that is trained
};

bool any_trainable(const ModuleCosts& module) {
  return std::any_of(module.stages.begin(), module.stages.end(), [](const StageCosts& stage) {
    return stage.trainable;
  });
}

Samples samples_of(const Subject& subject, const ReplicaAssignment& replica) {
  const int llm = subject.program.llm_module();
  Samples result;
  result.llm_slot.assign(at(subject.costs.num_samples), -1);
  result.trained_features.assign(at(replica.num_slots), 0);
  for (std::size_t slot = 0; slot < replica.modules[at(llm)].size(); ++slot) {
    for (const WorkItem& item : replica.modules[at(llm)][slot]) {
      if (item.is_chunk()) {
        throw InvalidInput(
            fmt::format("sample {} is cut into chunks, which programs cannot hold", item.sample));
      }
      result.llm_slot[at(item.sample)] = static_cast<int>(slot);
    }
  }
  for (int module = 0; module < llm; ++module) {
    const bool trained = any_trainable(subject.costs.modules[at(module)]);
    for (const Slot& slot : replica.modules[at(module)]) {
      for (const WorkItem& item : slot) {
        const int llm_slot = result.llm_slot[at(item.sample)];
        if (llm_slot < 0) {
          throw InvalidInput(
              fmt::format("sample {} has encoder work but no LLM slot", item.sample));
        }
        if (trained) {
          result.trained_features[at(llm_slot)] = 1;
        }
      }
    }
  }
  return result;
}

// The slot's items as its groups must hold them, one after another.
Slot expected_items(const Slot& slot, const Samples& samples) {
  Slot items = slot;
  std::stable_sort(items.begin(), items.end(), [&](const WorkItem& a, const WorkItem& b) {
    return samples.llm_slot[at(a.sample)] < samples.llm_slot[at(b.sample)];
  });
  return items;
}

class SlotChecker {
 public:
  SlotChecker(const Subject& subject, const Samples& samples, int replica, int module, int slot)
      : subject_(subject), samples_(samples), replica_(replica), module_(module), slot_(slot) {}

  void check() const {
    const Slot& assigned =
        subject_.assignment.replicas[at(replica_)].modules[at(module_)][at(slot_)];
    const auto& groups = subject_.program.replicas[at(replica_)].groups[at(module_)][at(slot_)];
    Slot held;
    int last_llm_slot = -1;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      check_group(groups[g], static_cast<int>(g));
      if (groups[g].llm_slots.front() <= last_llm_slot) {
        fail(static_cast<int>(g),
             fmt::format("serves LLM slot {} after the group before it served {}",
                         groups[g].llm_slots.front(),
                         last_llm_slot));
      }
      last_llm_slot = groups[g].llm_slots.back();
      held.insert(held.end(), groups[g].items.begin(), groups[g].items.end());
    }
    if (held != expected_items(assigned, samples_)) {
      fail(-1,
           fmt::format("the groups do not hold the {} assigned items by LLM slot in packing order",
                       assigned.size()));
    }
  }

 private:
  [[nodiscard]] bool is_llm() const { return module_ == subject_.program.llm_module(); }

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
    std::vector<int> llm_slots;
    std::vector<int> part_sizes;
    for (const WorkItem& item : group.items) {
      if (item.sample < 0 || item.sample >= subject_.costs.num_samples) {
        fail(index, fmt::format("unknown sample {}", item.sample));
      }
      const int llm_slot = samples_.llm_slot[at(item.sample)];
      if (llm_slots.empty() || llm_slots.back() != llm_slot) {
        llm_slots.push_back(llm_slot);
        part_sizes.push_back(0);
      }
      ++part_sizes.back();
    }
    if (group.llm_slots != llm_slots || group.part_sizes != part_sizes) {
      fail(index, "llm_slots or part_sizes do not describe its items");
    }
    check_backward(group, index);
  }

  void check_backward(const Group& group, int index) const {
    const ModuleCosts& module = subject_.costs.modules[at(module_)];
    bool backward = is_llm() && samples_.trained_features[at(slot_)] != 0;
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
