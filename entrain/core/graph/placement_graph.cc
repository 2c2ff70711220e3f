#include "entrain/core/graph/placement_graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Of a slot: fewer allocations as it grows.
constexpr std::size_t kUsualParts = 8;

constexpr unsigned kLlmShift = 24;
constexpr std::uint64_t kUnitMask = (1ULL << kLlmShift) - 1;
constexpr std::size_t kFewChanges = 16;  // of a slot

std::uint64_t entry_of(int llm_slot, int unit) {
  return static_cast<std::uint64_t>(llm_slot) << kLlmShift | static_cast<std::uint64_t>(unit);
}
int llm_slot_of(std::uint64_t entry) {
  return static_cast<int>(entry >> kLlmShift);
}
std::size_t unit_of(std::uint64_t entry) {
  return entry & kUnitMask;
}

std::uint64_t mixed(std::uint64_t value) {  // as splitmix64 does
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::uint64_t shape_of(int module, int slot, const std::vector<int>& served) {
  if (served.empty()) {
    return 0;
  }
  std::uint64_t hash = static_cast<std::uint64_t>(module) << kLlmShift | at(slot);
  const auto mix = [&](std::uint64_t value) { hash = mixed(hash + value); };
  mix(served.size());
  for (const int llm_slot : served) {
    mix(static_cast<std::uint64_t>(llm_slot));
  }
  return hash;
}

}  // namespace

PlacementGraph::PlacementGraph(const Plan& plan, const StepCosts& costs)
    : stages_(stage_graph(plan, costs.link)), replicas_(at(plan.replicas)) {
  stages_.set_halves(costs);
  auto modules = std::make_shared<std::vector<KindCosts>>();
  for (const ModuleCosts& from : costs.modules) {
    const std::size_t numbers = at(from.first_unit.back()) + from.first_unit.size();
    ENTRAIN_INVARIANT(numbers <= kUnitMask, "too many units in a batch");
    modules->emplace_back(from, kind_);
  }
  modules_ = std::move(modules);
}

std::uint64_t PlacementGraph::place(const Placement& placement, int replica) {
  Replica& of = replicas_[at(replica)];
  of.edited.clear();
  set_num_slots(placement.num_slots[at(replica)], of);
  for (int module = 0; module <= stages_.llm; ++module) {
    place_module(module, placement, replica, of);
  }
  return of.shape;
}

std::uint64_t PlacementGraph::place(const PlacementEdit& edit, int replica) {
  Replica& of = replicas_[at(replica)];
  for (const SlotRef& ref : of.edited) {
    swap_works(ref, of);
  }
  of.edited.clear();
  set_num_slots(edit.placement().num_slots[at(replica)], of);
  for (const int sample : edit.samples()) {
    if (edit.replica_before(sample) == replica) {
      change_parts(edit.before(), sample, false, of);
    }
    if (edit.replica_of(sample) == replica) {
      change_parts(edit.placement(), sample, true, of);
    }
  }
  std::erase_if(of.edited, [&](const SlotRef& ref) { return !renew(ref, of); });
  return of.shape;
}

void PlacementGraph::set_num_slots(int num_slots, Replica& of) const {
  of.num_slots = num_slots;
  of.slots.resize(modules_->size());
  for (std::vector<Slot>& slots : of.slots) {
    slots.resize(std::max(slots.size(), at(num_slots)));
  }
}

void PlacementGraph::swap_works(const SlotRef& ref, Replica& of) {
  Slot& slot = of.slots[at(ref.module)][at(ref.slot)];
  of.shape += slot.before.shape - slot.now.shape;
  std::swap(slot.now, slot.before);
  if (slot.written) {
    slot.written = false;
    of.unwritten.push_back(ref);
  }
}

// All of a sample.
void PlacementGraph::change_parts(const Placement& placement,
                                  int sample,
                                  bool added,
                                  Replica& of) const {
  const int llm_slot = placement.llm_slot[at(sample)];
  const auto change = [&](int module, int number, int unit) {
    Slot& slot = of.slots[at(module)][at(number)];
    if (slot.changes.empty()) {
      of.edited.push_back({module, number});
    }
    slot.changes.push_back({entry_of(llm_slot, unit), added});
  };
  for (int module = 0; module < stages_.llm; ++module) {
    for_each_part(
        module, placement, sample, [&](int slot, int unit) { change(module, slot, unit); });
  }
  change(stages_.llm, llm_slot, sample);
}

// Makes what a slot has of what it had. Whether that differs.
bool PlacementGraph::renew(const SlotRef& ref, Replica& of) const {
  Slot& slot = of.slots[at(ref.module)][at(ref.slot)];
  const Work& old = slot.now;
  Work& made = slot.before;
  std::uint64_t key = old.key;
  for (const PartChange& change : slot.changes) {
    key += change.added ? mixed(change.part + 1) : 0 - mixed(change.part + 1);
  }
  const bool differs = key != old.key;
  if (differs) {
    made.key = key;
    made.parts = old.parts;
    apply(slot.changes, made.parts);
    group_parts(ref.module, ref.slot, made);
    const bool few = slot.changes.size() < made.parts.size();
    if (few && !old.sums.empty() && made.served == old.served) {
      made.sums = old.sums;
      change_sums((*modules_)[at(ref.module)], slot.changes, made);
    }
    swap_works(ref, of);
  }
  slot.changes.clear();
  return differs;
}

// Few changes shift the parts that follow them; many are sorted.
void PlacementGraph::apply(const std::vector<PartChange>& changes,
                           std::vector<std::uint64_t>& parts) {
  if (changes.size() <= kFewChanges) {
    for (const PartChange& change : changes) {
      const auto place = std::lower_bound(parts.begin(), parts.end(), change.part);
      if (change.added) {
        parts.insert(place, change.part);
      } else {
        parts.erase(place);
      }
    }
    return;
  }
  std::vector<std::uint64_t> removed;
  for (const PartChange& change : changes) {
    (change.added ? parts : removed).push_back(change.part);
  }
  std::sort(parts.begin(), parts.end());
  std::sort(removed.begin(), removed.end());
  const std::vector<std::uint64_t> all = std::exchange(parts, {});
  std::set_difference(
      all.begin(), all.end(), removed.begin(), removed.end(), std::back_inserter(parts));
}

const ReplicaGraph& PlacementGraph::graph(int replica) {
  Replica& of = replicas_[at(replica)];
  bool same = of.num_slots == of.graph.num_slots;
  for (const SlotRef& ref : of.unwritten) {
    Slot& slot = of.slots[at(ref.module)][at(ref.slot)];
    if (slot.now.sums.empty()) {
      sum_up((*modules_)[at(ref.module)], slot.now);
    }
    same = same && slot.now.served == slot.served;
  }
  if (same) {
    for (const SlotRef& ref : of.unwritten) {
      copy_sums(of.slots[at(ref.module)][at(ref.slot)], of.graph);
    }
  } else {
    assemble(of);
  }
  of.unwritten.clear();
  return of.graph;
}

// Calls visit(slot, entry) for all that a replica has of a module.
template <class Visit>
void PlacementGraph::for_each_entry(int module,
                                    const Placement& placement,
                                    int replica,
                                    Visit visit) const {
  for (const int sample : placement.samples[at(replica)]) {
    const int llm_slot = placement.llm_slot[at(sample)];
    if (module == stages_.llm) {
      visit(llm_slot, entry_of(llm_slot, sample));
      continue;
    }
    for_each_part(module, placement, sample, [&](int slot, int unit) {
      visit(slot, entry_of(llm_slot, unit));
    });
  }
}

// Only what is not in the slots yet is gathered.
void PlacementGraph::place_module(int module,
                                  const Placement& placement,
                                  int replica,
                                  Replica& of) {
  std::vector<Slot>& slots = of.slots[at(module)];
  keys_.assign(slots.size(), 0);
  for_each_entry(module, placement, replica, [&](int slot, std::uint64_t entry) {
    keys_[at(slot)] += mixed(entry + 1);
  });
  bool any_new = false;
  for (std::size_t number = 0; number < slots.size(); ++number) {
    Slot& slot = slots[number];
    slot.is_new = false;
    if (keys_[number] == slot.now.key) {
      continue;
    }
    swap_works({module, static_cast<int>(number)}, of);
    if (keys_[number] == slot.now.key) {
      continue;
    }
    of.shape -= slot.now.shape;
    slot.now.key = keys_[number];
    slot.now.parts.clear();
    slot.now.parts.reserve(kUsualParts);
    slot.is_new = true;
    any_new = true;
  }
  if (!any_new) {
    return;
  }
  for_each_entry(module, placement, replica, [&](int slot, std::uint64_t entry) {
    if (slots[at(slot)].is_new) {
      slots[at(slot)].now.parts.push_back(entry);
    }
  });
  for (std::size_t number = 0; number < slots.size(); ++number) {
    if (slots[number].is_new) {
      std::sort(slots[number].now.parts.begin(), slots[number].now.parts.end());
      group_parts(module, static_cast<int>(number), slots[number].now);
      of.shape += slots[number].now.shape;
    }
  }
}

// The rule of groups.h, of sorted parts.
void PlacementGraph::group_parts(int module, int slot, Work& work) const {
  const KindCosts& of = (*modules_)[at(module)];
  work.groups.clear();
  work.served.clear();
  work.served.reserve(kUsualParts);
  work.sums.clear();
  const std::vector<std::uint64_t>& parts = work.parts;
  std::size_t begin = 0;
  std::int64_t sum = 0;
  for (std::size_t part = 0; part < parts.size();) {
    std::size_t end = part + 1;
    while (end < parts.size() && llm_slot_of(parts[end]) == llm_slot_of(parts[part])) {
      ++end;
    }
    if (part > begin && sum >= of.launch_work) {
      add_group(begin, part, work);
      begin = part;
      sum = 0;
    }
    for (std::size_t i = part; i < end && sum < of.launch_work; ++i) {
      sum += of.work[unit_of(parts[i])];
    }
    part = end;
  }
  if (sum < of.launch_work && begin > 0 &&
      llm_slot_of(parts.back()) == llm_slot_of(parts[begin - 1]) + 1) {
    begin = work.groups.back().begin;
    work.served.resize(at(work.groups.back().served_begin));
    work.groups.pop_back();
  }
  if (!parts.empty()) {
    add_group(begin, parts.size(), work);
  }
  work.shape = shape_of(module, slot, work.served);
}

void PlacementGraph::add_group(std::size_t begin, std::size_t end, Work& work) const {
  Group& group = work.groups.emplace_back();
  group.begin = begin;
  group.end = end;
  group.served_begin = static_cast<int>(work.served.size());
  for (std::size_t i = begin; i < end; ++i) {
    const int llm_slot = llm_slot_of(work.parts[i]);
    if (i == begin || work.served.back() != llm_slot) {
      work.served.push_back(llm_slot);
    }
  }
  group.served_end = static_cast<int>(work.served.size());
  group.turn = work.served.back();
  work.served.push_back(-1);
}

void PlacementGraph::sum_up(const KindCosts& of, Work& work) const {
  for (const Group& group : work.groups) {
    const std::size_t first = work.sums.size();
    work.sums.insert(work.sums.end(), of.launch.begin(), of.launch.end());
    for (std::size_t i = group.begin; i < group.end; ++i) {
      for (std::size_t kind = 0; kind < of.kinds.size(); ++kind) {
        add(of.cost(unit_of(work.parts[i]), kind), work.sums[first + kind]);
      }
    }
    for (std::size_t kind = 0; kind < of.kinds.size(); ++kind) {
      GraphUnit& sum = work.sums[first + kind];
      sum.transfer_ns = transfer_time(stages_.link, sum.output_bytes).count();
    }
  }
}

// Sums that were of the same groups before the changes.
void PlacementGraph::change_sums(const KindCosts& of,
                                 const std::vector<PartChange>& changes,
                                 Work& work) const {
  const std::size_t kinds = of.kinds.size();
  for (const PartChange& change : changes) {
    const auto group =
        std::partition_point(work.groups.begin(), work.groups.end(), [&](const Group& other) {
          return other.turn < llm_slot_of(change.part);
        });
    GraphUnit* sums = &work.sums[static_cast<std::size_t>(group - work.groups.begin()) * kinds];
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const GraphUnit cost = of.cost(unit_of(change.part), kind);
      change.added ? add(cost, sums[kind]) : subtract(cost, sums[kind]);
      sums[kind].transfer_ns = transfer_time(stages_.link, sums[kind].output_bytes).count();
    }
  }
}

void PlacementGraph::copy_sums(Slot& slot, ReplicaGraph& graph) {
  if (!slot.now.sums.empty()) {
    const GraphGroup& first = graph.groups[at(slot.first_group)];
    std::copy(slot.now.sums.begin(), slot.now.sums.end(), graph.costs.begin() + first.first_cost);
  }
  slot.written = true;
}

void PlacementGraph::assemble(Replica& of) const {
  ReplicaGraph& graph = of.graph;
  graph.num_slots = of.num_slots;
  graph.num_units = 0;
  graph.kind = kind_;
  graph.costs.clear();
  graph.groups.clear();
  graph.first_group.clear();
  graph.served.clear();
  for (int module = 0; module <= stages_.llm; ++module) {
    graph.first_group.push_back(static_cast<int>(graph.groups.size()));
    int number = 0;
    for (Slot& slot : of.slots[at(module)]) {
      append_slot(module, number++, slot, graph);
    }
  }
  graph.first_group.push_back(static_cast<int>(graph.groups.size()));
  const int first_llm = graph.first_llm_group();
  std::vector<int> llm_group(at(of.num_slots), -1);
  for (std::size_t number = at(first_llm); number < graph.groups.size(); ++number) {
    llm_group[at(graph.groups[number].slot)] = static_cast<int>(number);
  }
  for (int& served : graph.served) {
    served = llm_group[at(served)];
  }
  for (int number = 0; number < first_llm; ++number) {
    const GraphGroup& group = graph.group(number);
    if (group.first_backward < (*modules_)[at(group.module)].num_stages) {
      for (const int served : graph.served_by(group)) {
        graph.groups[at(served)].first_backward = 0;
      }
    }
  }
  graph.link();
}

void PlacementGraph::append_slot(int module, int number, Slot& slot, ReplicaGraph& graph) const {
  const KindCosts& of = (*modules_)[at(module)];
  slot.first_group = static_cast<int>(graph.groups.size());
  slot.served = slot.now.served;
  slot.written = true;
  int first_cost = static_cast<int>(graph.costs.size());
  graph.costs.insert(graph.costs.end(), slot.now.sums.begin(), slot.now.sums.end());
  for (const Group& group : slot.now.groups) {
    GraphGroup& added = graph.groups.emplace_back();
    added.module = module;
    added.slot = number;
    added.group = static_cast<int>(graph.groups.size()) - 1 - slot.first_group;
    added.first_unit = graph.num_units;
    added.first_cost = first_cost;
    added.first_backward = of.first_backward;
    added.turn = group.turn;
    added.completing = group.turn;
    added.served_begin = static_cast<int>(graph.served.size());
    if (module < stages_.llm) {
      graph.served.insert(graph.served.end(),
                          slot.now.served.begin() + group.served_begin,
                          slot.now.served.begin() + group.served_end);
    }
    added.served_end = static_cast<int>(graph.served.size());
    graph.num_units += of.num_stages;
    first_cost += static_cast<int>(of.kinds.size());
  }
}

}  // namespace entrain
