#include "entrain/core/graph/placement_graph.h"

#include <algorithm>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr unsigned kLlmShift = 24;
constexpr std::uint64_t kUnitMask = (1ULL << kLlmShift) - 1;

std::uint64_t entry_of(int llm_slot, int unit) {
  return static_cast<std::uint64_t>(llm_slot) << kLlmShift | static_cast<std::uint64_t>(unit);
}
int llm_slot_of(std::uint64_t entry) {
  return static_cast<int>(entry >> kLlmShift);
}
std::size_t unit_of(std::uint64_t entry) {
  return entry & kUnitMask;
}

void add(GraphUnit& to, const GraphUnit& unit) {
  to.forward += unit.forward;
  to.backward_input += unit.backward_input;
  to.backward_weight += unit.backward_weight;
  to.split += unit.split;
  to.activation_bytes += unit.activation_bytes;
  to.output_bytes += unit.output_bytes;
  to.recompute.all += unit.recompute.all;
  to.recompute.largest += unit.recompute.largest;
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

GraphUnit flat(const UnitCost& cost) {
  return {cost.time.forward.count(),
          cost.time.backward_input.count(),
          cost.time.backward_weight.count(),
          cost.time.split.count(),
          cost.activation_bytes,
          cost.output_bytes,
          0,
          cost.recompute};
}

GraphUnit launch_of(const StageCosts& stage) {
  return {stage.launch.forward.count(),
          stage.launch.backward_input.count(),
          stage.launch.backward_weight.count(),
          stage.launch.split.count(),
          0,
          0};
}

bool cost_the_same(const StageCosts& a, const StageCosts& b) {
  return launch_of(a) == launch_of(b) &&
         std::equal(a.units.begin(),
                    a.units.end(),
                    b.units.begin(),
                    b.units.end(),
                    [](const UnitCost& x, const UnitCost& y) { return flat(x) == flat(y); });
}

}  // namespace

PlacementGraph::PlacementGraph(const Plan& plan, const StepCosts& costs)
    : stages_(stage_graph(plan, costs.link)), replicas_(at(plan.replicas)) {
  stages_.set_halves(costs);
  for (const ModuleCosts& from : costs.modules) {
    const std::size_t num_units = at(from.first_unit.back());
    ENTRAIN_INVARIANT(num_units + from.first_unit.size() <= kUnitMask, "too many units in a batch");
    Module& module = modules_.emplace_back();
    module.num_stages = static_cast<int>(from.stages.size());
    module.first_backward = module.num_stages;
    module.first_unit = &from.first_unit;
    module.work.assign(num_units + from.first_unit.size(), 0);
    for (std::size_t stage = from.stages.size(); stage > 0; --stage) {
      if (from.stages[stage - 1].trainable) {
        module.first_backward = static_cast<int>(stage) - 1;
      }
      const OperationTimes& launch = from.stages[stage - 1].launch;
      module.launch_work += (launch.forward + launch.backward()).count();
    }
    add_units(from, module);
    add_samples(module);
  }
}

void PlacementGraph::add_units(const ModuleCosts& from, Module& module) {
  std::vector<std::int64_t> times;  // [kind] stages of it
  for (const StageCosts& stage : from.stages) {
    const auto like =
        std::find_if(module.kinds.begin(), module.kinds.end(), [&](const StageCosts* other) {
          return cost_the_same(*other, stage);
        });
    const auto kind = static_cast<std::size_t>(like - module.kinds.begin());
    kind_.push_back(static_cast<int>(kind));
    if (like == module.kinds.end()) {
      module.kinds.push_back(&stage);
      times.push_back(0);
      module.launch.push_back(launch_of(stage));
    }
    ++times[kind];
  }
  for (std::size_t kind = 0; kind < times.size(); ++kind) {
    const std::vector<UnitCost>& units = module.kinds[kind]->units;
    for (std::size_t unit = 0; unit < at(from.first_unit.back()); ++unit) {
      const OperationTimes& time = units[unit].time;
      module.work[unit] += times[kind] * (time.forward + time.backward()).count();
    }
  }
}

// The sums over each sample's units: most samples are in one slot.
void PlacementGraph::add_samples(Module& module) {
  const std::vector<int>& first = *module.first_unit;
  const std::size_t kinds = module.kinds.size();
  module.sums.resize((first.size() - 1) * kinds);
  for (std::size_t sample = 0; sample + 1 < first.size(); ++sample) {
    for (std::size_t unit = at(first[sample]); unit < at(first[sample + 1]); ++unit) {
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        add(module.sums[sample * kinds + kind], module.cost(unit, kind));
      }
      module.work[at(first.back()) + sample] += module.work[unit];
    }
  }
}

GraphUnit PlacementGraph::Module::cost(std::size_t unit, std::size_t kind) const {
  const std::size_t num_units = at(first_unit->back());
  return unit < num_units ? flat(kinds[kind]->units[unit])
                          : sums[(unit - num_units) * kinds.size() + kind];
}

std::uint64_t PlacementGraph::place(const Placement& placement, int replica) {
  Replica& of = replicas_[at(replica)];
  of.num_slots = placement.num_slots[at(replica)];
  of.slots.resize(modules_.size());
  for (int module = 0; module <= stages_.llm; ++module) {
    std::vector<Slot>& slots = of.slots[at(module)];
    slots.resize(std::max(slots.size(), at(of.num_slots)));
    place_module(module, placement, replica, of);
  }
  return of.shape;
}

const ReplicaGraph& PlacementGraph::graph(int replica) {
  Replica& of = replicas_[at(replica)];
  bool same = of.num_slots == of.graph.num_slots;
  for (std::size_t module = 0; module < of.slots.size(); ++module) {
    for (Slot& slot : of.slots[module]) {
      if (!slot.written && slot.now.sums.empty()) {
        sum_up(modules_[module], slot.now);
      }
      same = same && (slot.written || slot.now.served == slot.served);
    }
  }
  if (!same) {
    assemble(of);
    return of.graph;
  }
  for (std::vector<Slot>& slots : of.slots) {
    for (Slot& slot : slots) {
      if (!slot.written) {
        copy_sums(slot, of.graph);
      }
    }
  }
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
    of.shape -= slot.now.shape;
    std::swap(slot.now, slot.before);
    slot.written = false;
    if (keys_[number] == slot.now.key) {
      of.shape += slot.now.shape;
      continue;
    }
    slot.now.key = keys_[number];
    slot.now.parts.clear();
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
      group_parts(module, static_cast<int>(number), slots[number].now);
      of.shape += slots[number].now.shape;
    }
  }
}

// The rule of groups.h.
void PlacementGraph::group_parts(int module, int slot, Work& work) const {
  const Module& of = modules_[at(module)];
  std::sort(work.parts.begin(), work.parts.end());
  work.groups.clear();
  work.served.clear();
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

void PlacementGraph::sum_up(const Module& of, Work& work) const {
  for (const Group& group : work.groups) {
    const std::size_t first = work.sums.size();
    work.sums.insert(work.sums.end(), of.launch.begin(), of.launch.end());
    for (std::size_t i = group.begin; i < group.end; ++i) {
      for (std::size_t kind = 0; kind < of.kinds.size(); ++kind) {
        add(work.sums[first + kind], of.cost(unit_of(work.parts[i]), kind));
      }
    }
    for (std::size_t kind = 0; kind < of.kinds.size(); ++kind) {
      GraphUnit& sum = work.sums[first + kind];
      sum.transfer_ns = transfer_time(stages_.link, sum.output_bytes).count();
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
    if (group.first_backward < modules_[at(group.module)].num_stages) {
      for (const int served : graph.served_by(group)) {
        graph.groups[at(served)].first_backward = 0;
      }
    }
  }
  graph.link();
}

void PlacementGraph::append_slot(int module, int number, Slot& slot, ReplicaGraph& graph) const {
  const Module& of = modules_[at(module)];
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
