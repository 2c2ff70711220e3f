#include "entrain/core/graph/placement_graph.h"

#include <algorithm>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr unsigned kSlotShift = 44;
constexpr unsigned kLlmShift = 24;
constexpr std::uint64_t kUnitMask = (1ULL << kLlmShift) - 1;
constexpr std::uint64_t kLlmMask = (1ULL << (kSlotShift - kLlmShift)) - 1;

int slot_of(std::uint64_t entry) {
  return static_cast<int>(entry >> kSlotShift);
}
int llm_slot_of(std::uint64_t entry) {
  return static_cast<int>((entry >> kLlmShift) & kLlmMask);
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
  mark_llm_slots(placement, replica);
  for (int module = 0; module < stages_.llm; ++module) {
    graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
    add_encoder(module, placement, replica);
  }
  const int first_llm = static_cast<int>(graph_.groups.size());
  graph_.first_group.push_back(first_llm);
  for (int& served : graph_.served) {
    served += first_llm;
  }
  add_llm(placement, replica);
  graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
  graph_.link();
  return graph_;
}

void PlacementGraph::mark_llm_slots(const Placement& placement, int replica) {
  llm_group_.assign(at(graph_.num_slots), -1);
  trainable_features_.assign(at(graph_.num_slots), 0);
  for (const int sample : placement.samples[at(replica)]) {
    llm_group_[at(placement.llm_slot[at(sample)])] = 0;
  }
  int next = 0;
  for (int& group : llm_group_) {
    group = group < 0 ? -1 : next++;
  }
}

void PlacementGraph::add_encoder(int module, const Placement& placement, int replica) {
  const std::vector<int>& first = *modules_[at(module)].first_unit;
  const std::vector<int>& slots = placement.encoder_slot[at(module)];
  entries_.clear();
  for (const int sample : placement.samples[at(replica)]) {
    const auto llm_slot = static_cast<std::uint64_t>(placement.llm_slot[at(sample)]);
    const int begin = first[at(sample)];
    const int end = first[at(sample + 1)];
    if (begin == end) {
      continue;
    }
    const auto entry = [&](int slot, int unit) {
      return static_cast<std::uint64_t>(slot) << kSlotShift | llm_slot << kLlmShift |
             static_cast<std::uint64_t>(unit);
    };
    const int slot = slots[at(begin)];
    if (std::all_of(
            slots.begin() + begin, slots.begin() + end, [slot](int of) { return of == slot; })) {
      entries_.push_back(entry(slot, first.back() + sample));
      continue;
    }
    for (int unit = begin; unit < end; ++unit) {
      entries_.push_back(entry(slots[at(unit)], unit));
    }
  }
  std::sort(entries_.begin(), entries_.end());
  for (std::size_t begin = 0; begin < entries_.size();) {
    std::size_t end = begin + 1;
    while (end < entries_.size() && slot_of(entries_[end]) == slot_of(entries_[begin])) {
      ++end;
    }
    add_slot(module, begin, end);
    begin = end;
  }
}

// The rule of groups.h.
void PlacementGraph::add_slot(int module, std::size_t begin, std::size_t end) {
  const Module& of = modules_[at(module)];
  const bool one_graph = of.first_backward == of.num_stages;
  runs_.clear();
  std::int64_t work = 0;
  for (std::size_t part = begin; part < end;) {
    std::size_t part_end = part + 1;
    while (part_end < end && llm_slot_of(entries_[part_end]) == llm_slot_of(entries_[part])) {
      ++part_end;
    }
    if (runs_.empty() || !(one_graph || work < of.launch_work)) {
      runs_.push_back({part, part});
      work = 0;
    }
    for (std::size_t i = part; i < part_end && work < of.launch_work; ++i) {
      work += of.work[unit_of(entries_[i])];
    }
    runs_.back().end = part_end;
    part = part_end;
  }
  if (!one_graph && work < of.launch_work && runs_.size() > 1) {
    Run& before = runs_[runs_.size() - 2];
    const int last_slot = llm_slot_of(entries_[runs_.back().end - 1]);
    if (last_slot == llm_slot_of(entries_[before.end - 1]) + 1) {
      before.end = runs_.back().end;
      runs_.pop_back();
    }
  }
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    add_group(module, runs_[i], static_cast<int>(i));
  }
}

void PlacementGraph::add_group(int module, const Run& run, int group) {
  const Module& of = modules_[at(module)];
  GraphGroup flat_group;
  flat_group.module = module;
  flat_group.slot = slot_of(entries_[run.begin]);
  flat_group.group = group;
  flat_group.first_unit = graph_.num_units;
  flat_group.first_cost = static_cast<int>(graph_.costs.size());
  flat_group.first_backward = of.first_backward;
  flat_group.turn = llm_slot_of(entries_[run.end - 1]);
  flat_group.completing = flat_group.turn;
  flat_group.served_begin = static_cast<int>(graph_.served.size());
  graph_.num_units += of.num_stages;
  graph_.costs.insert(graph_.costs.end(), of.launch.begin(), of.launch.end());
  GraphUnit* sums = &graph_.costs[at(flat_group.first_cost)];
  int last = -1;
  for (std::size_t i = run.begin; i < run.end; ++i) {
    const GraphUnit* costs = &of.units[unit_of(entries_[i]) * at(of.num_kinds)];
    for (int kind = 0; kind < of.num_kinds; ++kind) {
      add(sums[kind], costs[kind]);
    }
    const int llm_slot = llm_slot_of(entries_[i]);
    if (llm_slot != last) {
      graph_.served.push_back(llm_group_[at(llm_slot)]);
      if (of.first_backward < of.num_stages) {
        trainable_features_[at(llm_slot)] = 1;
      }
      last = llm_slot;
    }
  }
  flat_group.served_end = static_cast<int>(graph_.served.size());
  graph_.groups.push_back(flat_group);
}

void PlacementGraph::add_llm(const Placement& placement, int replica) {
  const Module& of = modules_.back();
  const std::size_t first_cost = graph_.costs.size();
  for (int slot = 0; slot < graph_.num_slots; ++slot) {
    if (llm_group_[at(slot)] < 0) {
      continue;
    }
    GraphGroup group;
    group.module = stages_.llm;
    group.slot = slot;
    group.first_unit = graph_.num_units;
    group.first_cost = static_cast<int>(graph_.costs.size());
    group.first_backward = trainable_features_[at(slot)] != 0 ? 0 : of.first_backward;
    group.turn = slot;
    group.completing = slot;
    group.served_begin = group.served_end = static_cast<int>(graph_.served.size());
    graph_.groups.push_back(group);
    graph_.num_units += of.num_stages;
    graph_.costs.insert(graph_.costs.end(), of.launch.begin(), of.launch.end());
  }
  for (const int sample : placement.samples[at(replica)]) {
    const int group = llm_group_[at(placement.llm_slot[at(sample)])];
    GraphUnit* sums = &graph_.costs[first_cost + at(group) * at(of.num_kinds)];
    const GraphUnit* costs = &of.units[at(sample) * at(of.num_kinds)];
    for (int kind = 0; kind < of.num_kinds; ++kind) {
      add(sums[kind], costs[kind]);
    }
  }
}

}  // namespace entrain
