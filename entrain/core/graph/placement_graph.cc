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
  std::vector<std::size_t> stages;  // [kind] the first of it
  std::vector<std::int64_t> times;  // [kind] stages of it
  for (std::size_t s = 0; s < from.stages.size(); ++s) {
    const auto like = std::find_if(stages.begin(), stages.end(), [&](std::size_t other) {
      return cost_the_same(from.stages[other], from.stages[s]);
    });
    const auto kind = static_cast<std::size_t>(like - stages.begin());
    kind_.push_back(static_cast<int>(kind));
    if (like == stages.end()) {
      stages.push_back(s);
      times.push_back(0);
      module.launch.push_back(launch_of(from.stages[s]));
    }
    ++times[kind];
  }
  module.num_kinds = static_cast<int>(stages.size());
  const std::size_t num_units = at(from.first_unit.back());
  module.units.resize((num_units + from.first_unit.size()) * stages.size());
  for (std::size_t kind = 0; kind < stages.size(); ++kind) {
    const std::vector<UnitCost>& units = from.stages[stages[kind]].units;
    for (std::size_t unit = 0; unit < num_units; ++unit) {
      module.units[unit * stages.size() + kind] = flat(units[unit]);
      const OperationTimes& time = units[unit].time;
      module.work[unit] += times[kind] * (time.forward + time.backward()).count();
    }
  }
}

// After the units, the sums over each sample's: most samples are in one slot.
void PlacementGraph::add_samples(Module& module) {
  const std::vector<int>& first = *module.first_unit;
  const std::size_t kinds = at(module.num_kinds);
  for (std::size_t sample = 0; sample + 1 < first.size(); ++sample) {
    const std::size_t sum = at(first.back()) + sample;
    for (std::size_t unit = at(first[sample]); unit < at(first[sample + 1]); ++unit) {
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        add(module.units[sum * kinds + kind], module.units[unit * kinds + kind]);
      }
      module.work[sum] += module.work[unit];
    }
  }
}

const ReplicaGraph& PlacementGraph::build(const Placement& placement, int replica) {
  Replica& of = replicas_[at(replica)];
  const int num_slots = placement.num_slots[at(replica)];
  bool same = num_slots == of.graph.num_slots;
  of.slots.resize(modules_.size());
  for (int module = 0; module <= stages_.llm; ++module) {
    std::vector<Slot>& slots = of.slots[at(module)];
    slots.resize(std::max(slots.size(), at(num_slots)));
    gathered_.resize(std::max(gathered_.size(), slots.size()));
    if (module < stages_.llm) {
      gather_encoder(module, placement, replica);
    } else {
      gather_llm(placement, replica);
    }
    same = update(module, of) && same;
  }
  if (!same) {
    assemble(num_slots, of);
  }
  return of.graph;
}

void PlacementGraph::gather_encoder(int module, const Placement& placement, int replica) {
  const std::vector<int>& first = *modules_[at(module)].first_unit;
  const std::vector<int>& slots = placement.encoder_slot[at(module)];
  for (const int sample : placement.samples[at(replica)]) {
    const int llm_slot = placement.llm_slot[at(sample)];
    const int begin = first[at(sample)];
    const int end = first[at(sample + 1)];
    if (begin == end) {
      continue;
    }
    const int slot = slots[at(begin)];
    if (std::all_of(
            slots.begin() + begin, slots.begin() + end, [slot](int of) { return of == slot; })) {
      gathered_[at(slot)].push_back(entry_of(llm_slot, first.back() + sample));
      continue;
    }
    for (int unit = begin; unit < end; ++unit) {
      gathered_[at(slots[at(unit)])].push_back(entry_of(llm_slot, unit));
    }
  }
}

void PlacementGraph::gather_llm(const Placement& placement, int replica) {
  for (const int sample : placement.samples[at(replica)]) {
    const int slot = placement.llm_slot[at(sample)];
    gathered_[at(slot)].push_back(entry_of(slot, sample));
  }
}

// Clears what was gathered.
bool PlacementGraph::update(int module, Replica& of) {
  const auto alike = [](const Group& a, const Group& b) { return a.llm_slots == b.llm_slots; };
  bool same = true;
  std::vector<Slot>& slots = of.slots[at(module)];
  for (std::size_t number = 0; number < slots.size(); ++number) {
    std::vector<std::uint64_t>& entries = gathered_[number];
    Slot& slot = slots[number];
    if (entries != slot.entries) {
      slot.entries.swap(entries);
      sorted_ = slot.entries;
      std::sort(sorted_.begin(), sorted_.end());
      group_parts(module, static_cast<int>(number));
      const bool kept =
          std::equal(groups_.begin(), groups_.end(), slot.groups.begin(), slot.groups.end(), alike);
      for (std::size_t i = 0; kept && i < groups_.size(); ++i) {
        groups_[i].graph = slot.groups[i].graph;
        std::copy(groups_[i].sums.begin(),
                  groups_[i].sums.end(),
                  of.graph.costs.begin() + groups_[i].graph.first_cost);
      }
      slot.groups.swap(groups_);
      same = same && kept;
    }
    entries.clear();
  }
  return same;
}

// The rule of groups.h, for sorted_. Fills groups_.
void PlacementGraph::group_parts(int module, int slot) {
  const Module& of = modules_[at(module)];
  starts_.clear();
  std::int64_t work = 0;
  for (std::size_t part = 0; part < sorted_.size();) {
    std::size_t end = part + 1;
    while (end < sorted_.size() && llm_slot_of(sorted_[end]) == llm_slot_of(sorted_[part])) {
      ++end;
    }
    if (starts_.empty() || work >= of.launch_work) {
      starts_.push_back(part);
      work = 0;
    }
    for (std::size_t i = part; i < end && work < of.launch_work; ++i) {
      work += of.work[unit_of(sorted_[i])];
    }
    part = end;
  }
  if (work < of.launch_work && starts_.size() > 1 &&
      llm_slot_of(sorted_.back()) == llm_slot_of(sorted_[starts_.back() - 1]) + 1) {
    starts_.pop_back();
  }
  groups_.resize(starts_.size());
  starts_.push_back(sorted_.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    GraphGroup& graph = groups_[i].graph;
    graph.module = module;
    graph.slot = slot;
    graph.group = static_cast<int>(i);
    graph.first_backward = of.first_backward;
    graph.turn = llm_slot_of(sorted_[starts_[i + 1] - 1]);
    graph.completing = graph.turn;
    fill(of, starts_[i], starts_[i + 1], groups_[i]);
  }
}

void PlacementGraph::fill(const Module& of,
                          std::size_t begin,
                          std::size_t end,
                          Group& group) const {
  group.sums = of.launch;
  group.llm_slots.clear();
  for (std::size_t i = begin; i < end; ++i) {
    const GraphUnit* costs = &of.units[unit_of(sorted_[i]) * at(of.num_kinds)];
    for (int kind = 0; kind < of.num_kinds; ++kind) {
      add(group.sums[at(kind)], costs[kind]);
    }
    const int llm_slot = llm_slot_of(sorted_[i]);
    if (group.llm_slots.empty() || group.llm_slots.back() != llm_slot) {
      group.llm_slots.push_back(llm_slot);
    }
  }
  for (GraphUnit& sum : group.sums) {
    sum.transfer_ns = transfer_time(stages_.link, sum.output_bytes).count();
  }
}

void PlacementGraph::assemble(int num_slots, Replica& of) const {
  ReplicaGraph& graph = of.graph;
  graph.num_slots = num_slots;
  graph.num_units = 0;
  graph.kind = kind_;
  graph.costs.clear();
  graph.groups.clear();
  graph.first_group.clear();
  graph.served.clear();
  std::vector<int> llm_group(at(num_slots), -1);
  std::vector<char> trainable_features(at(num_slots), 0);
  for (int module = 0; module <= stages_.llm; ++module) {
    graph.first_group.push_back(static_cast<int>(graph.groups.size()));
    for (Slot& slot : of.slots[at(module)]) {
      for (Group& group : slot.groups) {
        if (module == stages_.llm) {
          const std::size_t number = at(group.graph.slot);
          llm_group[number] = static_cast<int>(graph.groups.size());
          group.graph.first_backward =
              trainable_features[number] != 0 ? 0 : modules_[at(module)].first_backward;
        }
        append(modules_[at(module)], group, graph);
        if (module < stages_.llm && group.graph.first_backward < modules_[at(module)].num_stages) {
          for (const int served : group.llm_slots) {
            trainable_features[at(served)] = 1;
          }
        }
      }
    }
  }
  graph.first_group.push_back(static_cast<int>(graph.groups.size()));
  for (int& served : graph.served) {
    served = llm_group[at(served)];
  }
  graph.link();
  of.shape = graph.shape();
}

void PlacementGraph::append(const Module& module, Group& group, ReplicaGraph& graph) const {
  GraphGroup& of = group.graph;
  of.first_unit = graph.num_units;
  of.first_cost = static_cast<int>(graph.costs.size());
  of.served_begin = static_cast<int>(graph.served.size());
  if (of.module < stages_.llm) {
    graph.served.insert(graph.served.end(), group.llm_slots.begin(), group.llm_slots.end());
  }
  of.served_end = static_cast<int>(graph.served.size());
  graph.num_units += module.num_stages;
  graph.costs.insert(graph.costs.end(), group.sums.begin(), group.sums.end());
  graph.groups.push_back(of);
}

}  // namespace entrain
