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
    : stages_(stage_graph(plan, costs.link)) {
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
    graph_.kind.push_back(static_cast<int>(kind));
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
  graph_.num_slots = placement.num_slots[at(replica)];
  graph_.num_units = 0;
  graph_.costs.clear();
  graph_.groups.clear();
  graph_.first_group.clear();
  graph_.served.clear();
  gathered_.resize(std::max(gathered_.size(), at(graph_.num_slots)));
  slots_.resize(std::max(slots_.size(), at(replica + 1) * modules_.size()));
  trainable_features_.assign(at(graph_.num_slots), 0);
  for (int module = 0; module < stages_.llm; ++module) {
    gather_encoder(module, placement, replica);
    add_slots(module, replica);
  }
  gather_llm(placement, replica);
  llm_group_.assign(at(graph_.num_slots), -1);
  const int first_llm = static_cast<int>(graph_.groups.size());
  for (int slot = 0, next = first_llm; slot < graph_.num_slots; ++slot) {
    if (!gathered_[at(slot)].empty()) {
      llm_group_[at(slot)] = next++;
    }
  }
  for (int& served : graph_.served) {
    served = llm_group_[at(served)];
  }
  add_slots(stages_.llm, replica);
  graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
  graph_.link();
  return graph_;
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
void PlacementGraph::add_slots(int module, int replica) {
  std::vector<Slot>& slots = slots_[at(replica) * modules_.size() + at(module)];
  slots.resize(std::max(slots.size(), at(graph_.num_slots)));
  graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
  for (int number = 0; number < graph_.num_slots; ++number) {
    std::vector<std::uint64_t>& entries = gathered_[at(number)];
    Slot& slot = slots[at(number)];
    if (entries != slot.entries) {
      slot.entries = entries;
      sorted_ = entries;
      std::sort(sorted_.begin(), sorted_.end());
      group_parts(module, number, slot.groups);
    }
    entries.clear();
    for (const Group& group : slot.groups) {
      add_group(module, group);
    }
  }
}

// The rule of groups.h, for sorted_.
void PlacementGraph::group_parts(int module, int slot, std::vector<Group>& groups) {
  const Module& of = modules_[at(module)];
  const bool one_graph = of.first_backward == of.num_stages;
  starts_.clear();
  std::int64_t work = 0;
  for (std::size_t part = 0; part < sorted_.size();) {
    std::size_t end = part + 1;
    while (end < sorted_.size() && llm_slot_of(sorted_[end]) == llm_slot_of(sorted_[part])) {
      ++end;
    }
    if (starts_.empty() || !(one_graph || work < of.launch_work)) {
      starts_.push_back(part);
      work = 0;
    }
    for (std::size_t i = part; i < end && work < of.launch_work; ++i) {
      work += of.work[unit_of(sorted_[i])];
    }
    part = end;
  }
  if (!one_graph && work < of.launch_work && starts_.size() > 1) {
    if (llm_slot_of(sorted_.back()) == llm_slot_of(sorted_[starts_.back() - 1]) + 1) {
      starts_.pop_back();
    }
  }
  groups.resize(starts_.size());
  starts_.push_back(sorted_.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Group& group = groups[i];
    group.group.module = module;
    group.group.slot = slot;
    group.group.group = static_cast<int>(i);
    group.group.first_backward = of.first_backward;
    group.group.turn = llm_slot_of(sorted_[starts_[i + 1] - 1]);
    group.group.completing = group.group.turn;
    fill(of, starts_[i], starts_[i + 1], group);
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
}

void PlacementGraph::add_group(int module, const Group& from) {
  GraphGroup& group = graph_.groups.emplace_back(from.group);
  group.first_unit = graph_.num_units;
  group.first_cost = static_cast<int>(graph_.costs.size());
  group.served_begin = static_cast<int>(graph_.served.size());
  graph_.num_units += modules_[at(module)].num_stages;
  graph_.costs.insert(graph_.costs.end(), from.sums.begin(), from.sums.end());
  if (module == stages_.llm) {
    group.first_backward = trainable_features_[at(group.slot)] != 0 ? 0 : group.first_backward;
  } else {
    graph_.served.insert(graph_.served.end(), from.llm_slots.begin(), from.llm_slots.end());
    if (group.first_backward < modules_[at(module)].num_stages) {
      for (const int slot : from.llm_slots) {
        trainable_features_[at(slot)] = 1;
      }
    }
  }
  group.served_end = static_cast<int>(graph_.served.size());
}

}  // namespace entrain
