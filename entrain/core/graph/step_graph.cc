#include "entrain/core/graph/step_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

void add(const UnitCost& cost, GraphUnit& unit) {
  unit.forward += cost.time.forward.count();
  unit.backward_input += cost.time.backward_input.count();
  unit.backward_weight += cost.time.backward_weight.count();
  unit.split += cost.time.split.count();
  unit.activation_bytes += cost.activation_bytes;
  unit.output_bytes += cost.output_bytes;
  unit.recompute += cost.recompute;
}

// By turn, falling completing slot, number.
struct ReleasedBefore {
  const ReplicaGraph& graph;
  bool operator()(int a, int b) const {
    const GraphGroup& of_a = graph.group(a);
    const GraphGroup& of_b = graph.group(b);
    if (of_a.turn != of_b.turn) {
      return of_a.turn < of_b.turn;
    }
    return of_a.completing != of_b.completing ? of_a.completing > of_b.completing : a < b;
  }
};

std::vector<int> numbers_below(int end) {
  std::vector<int> numbers(at(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// `lane_of`: [stage number].
StageGraph stages_on(const std::vector<int>& num_stages,
                     const std::vector<int>& lane_of,
                     std::size_t num_lanes,
                     const LinkSpec& link) {
  StageGraph graph;
  graph.llm = static_cast<int>(num_stages.size()) - 1;
  graph.link = link;
  graph.lanes.resize(num_lanes);
  const std::size_t llm_first = lane_of.size() - at(num_stages.back());
  graph.llm_first_lane = lane_of[llm_first];
  for (int module = 0; module <= graph.llm; ++module) {
    graph.first_stage.push_back(static_cast<int>(graph.stages.size()));
    const int stages = num_stages[at(module)];
    for (int index = 0; index < stages; ++index) {
      const std::size_t number = graph.stages.size();
      StageGraph::Stage stage;
      stage.module = module;
      stage.stage = index;
      stage.lane = lane_of[number];
      stage.last = index + 1 == stages;
      if (!(stage.last && module == graph.llm)) {
        const int next = stage.last ? graph.llm_first_lane : lane_of[number + 1];
        stage.crosses = next != stage.lane;
      }
      stage.warm_up = stages - index - 1 + (module == graph.llm ? 0 : num_stages.back());
      graph.lanes[at(stage.lane)].push_back(static_cast<int>(number));
      graph.stages.push_back(stage);
    }
  }
  graph.first_stage.push_back(static_cast<int>(graph.stages.size()));
  return graph;
}

GraphUnit cost_of(
    const StageGraph& stages, const StepCosts& costs, const Group& group, int module, int index) {
  const StageCosts& stage = costs.modules[at(module)].stages[at(index)];
  GraphUnit unit;
  add({.time = stage.launch}, unit);
  for (const WorkItem& item : group.items) {
    if (item.is_chunk()) {
      add(unit_cost(costs, module, index, item), unit);
      unit.key_value_bytes += key_value_bytes(costs, index, item);
    } else {
      add(stage.units[at(costs.unit_of(module, item))], unit);
    }
  }
  unit.transfer_ns = transfer_time(stages.link, unit.output_bytes).count();
  return unit;
}

class GraphBuilder {
 public:
  GraphBuilder(const StageGraph& stages,
               const std::vector<int>& kind,
               const std::vector<ModuleGroups>& groups)
      : stages_(stages), groups_(groups) {
    graph_.kind = kind;
  }

  ReplicaGraph build() {
    graph_.num_slots = groups_.empty() ? 0 : static_cast<int>(groups_.back().size());
    reserve();
    for (int module = 0; module <= stages_.llm; ++module) {
      graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
      add_module(module);
    }
    graph_.first_group.push_back(static_cast<int>(graph_.groups.size()));
    link_chunks();
    link_encoders();
    graph_.link();
    return std::move(graph_);
  }

 private:
  void reserve() {
    std::size_t groups = 0;
    std::size_t parts = 0;
    for (const ModuleGroups& of_module : groups_) {
      for (const std::vector<Group>& of_slot : of_module) {
        groups += of_slot.size();
        for (const Group& group : of_slot) {
          parts += group.llm_slots.size();
        }
      }
    }
    graph_.groups.reserve(groups);
    graph_.served.reserve(parts);
    from_.reserve(groups);
  }

  void add_module(int module) {
    const int num_stages = stages_.num_stages(module);
    const auto kinds = graph_.kind.begin() + stages_.number(module, 0);
    const int num_kinds = *std::max_element(kinds, kinds + num_stages) + 1;
    for (int slot = 0; slot < graph_.num_slots; ++slot) {
      graph_.first_of_slot.push_back(static_cast<int>(graph_.groups.size()));
      const std::vector<Group>& of_slot = groups_[at(module)][at(slot)];
      for (std::size_t g = 0; g < of_slot.size(); ++g) {
        const Group& from = of_slot[g];
        const auto first = std::find(from.takes_backward.begin(), from.takes_backward.end(), 1);
        GraphGroup group;
        group.module = module;
        group.slot = slot;
        group.group = static_cast<int>(g);
        group.first_unit = std::exchange(graph_.num_units, graph_.num_units + num_stages);
        group.first_cost = std::exchange(num_costs_, num_costs_ + num_kinds);
        group.first_backward = static_cast<int>(first - from.takes_backward.begin());
        group.turn = group.completing = slot;
        graph_.groups.push_back(group);
        from_.push_back(&from);
        has_links_ = has_links_ || !from.earlier.empty() || !from.later.empty();
      }
    }
    graph_.first_of_slot.push_back(static_cast<int>(graph_.groups.size()));
  }

  [[nodiscard]] int llm_group(const LlmGroupRef& ref) const {
    const bool slot_exists = ref.slot >= 0 && ref.slot < graph_.num_slots;
    const int first = slot_exists ? graph_.first(stages_.llm, ref.slot) : 0;
    ENTRAIN_INVARIANT(slot_exists && ref.group >= 0 &&
                          first + ref.group < graph_.first(stages_.llm, ref.slot + 1),
                      fmt::format("no group {} in LLM slot {}", ref.group, ref.slot));
    return first + ref.group;
  }

  void link_encoders() {
    for (int number = 0; number < graph_.first_llm_group(); ++number) {
      GraphGroup& group = graph_.groups[at(number)];
      const Group& from = *from_[at(number)];
      group.turn = -1;
      group.served_begin = static_cast<int>(graph_.served.size());
      for (std::size_t part = 0; part < from.llm_slots.size(); ++part) {
        const int taker = llm_group(from.served(part));
        graph_.served.push_back(taker);
        if (graph_.group(taker).turn > group.turn) {
          group.turn = graph_.group(taker).turn;
          group.completing = graph_.group(taker).slot;  // parts come by rising slot
        }
      }
      group.served_end = static_cast<int>(graph_.served.size());
    }
    for (int number = graph_.first_llm_group(); number < graph_.end_of(stages_.llm); ++number) {
      GraphGroup& group = graph_.groups[at(number)];
      group.served_begin = group.served_end = static_cast<int>(graph_.served.size());
    }
  }

  void link_chunks() {
    if (!has_links_) {
      return;
    }
    const int first = graph_.first_llm_group();
    const int end = graph_.end_of(stages_.llm);
    // Where the samples of a group's chunks end: links go to higher numbers.
    std::vector<int> last(at(end - first));
    for (int number = end - 1; number >= first; --number) {
      last[at(number - first)] = number;
      GraphGroup& group = graph_.groups[at(number)];
      for (const LlmGroupRef& ref : from_[at(number)]->later) {
        const int other = llm_group(ref);
        ENTRAIN_INVARIANT(other > number, "a later chunk in an earlier group");
        last[at(number - first)] = std::max(last[at(number - first)], last[at(other - first)]);
        group.turn = std::max(group.turn, graph_.group(other).turn);
      }
    }
    std::vector<std::vector<int>> ended(last.size());
    for (int number = first; number < end; ++number) {
      if (last[at(number - first)] != number) {
        ended[at(last[at(number - first)] - first)].push_back(number);
      }
    }
    for (GroupLists* lists : {&graph_.earlier, &graph_.later, &graph_.ended}) {
      lists->begin.push_back(0);
    }
    for (int number = first; number < end; ++number) {
      for (const LlmGroupRef& ref : from_[at(number)]->earlier) {
        graph_.earlier.groups.push_back(llm_group(ref));
      }
      for (const LlmGroupRef& ref : from_[at(number)]->later) {
        graph_.later.groups.push_back(llm_group(ref));
      }
      const std::vector<int>& of_group = ended[at(number - first)];
      graph_.ended.groups.insert(graph_.ended.groups.end(), of_group.begin(), of_group.end());
      for (GroupLists* lists : {&graph_.earlier, &graph_.later, &graph_.ended}) {
        lists->begin.push_back(static_cast<int>(lists->groups.size()));
      }
    }
  }

  const StageGraph& stages_;
  const std::vector<ModuleGroups>& groups_;
  ReplicaGraph graph_;
  int num_costs_ = 0;
  std::vector<const Group*> from_;  // [group]
  bool has_links_ = false;          // between chunks
};

void check_channels(const StageGraph& stages, const ReplicaProgram& replica, int replica_index) {
  for (std::size_t i = 0; i < replica.channels.size(); ++i) {
    const Channel& channel = replica.channels[i];
    int source = stages.of(channel.producer.module, channel.producer.stage).lane;
    int target = stages.of(channel.consumer.module, channel.consumer.stage).lane;
    if (channel.gradient) {
      std::swap(source, target);
    }
    if (source != channel.source_lane || target != channel.target_lane) {
      throw InvalidInput(
          fmt::format("replica {} channel {}: runs from lane {} to lane {}, but its stages are on "
                      "lanes {} and {}",
                      replica_index,
                      i,
                      channel.source_lane,
                      channel.target_lane,
                      source,
                      target));
    }
  }
}

}  // namespace

void StageGraph::set_halves(const StepCosts& costs) {
  const auto has_input = [](const UnitCost& unit) { return unit.time.backward_input.count() > 0; };
  for (Stage& stage : stages) {
    const StageCosts& of = costs.modules[at(stage.module)].stages[at(stage.stage)];
    stage.both_halves = of.trainable && (of.launch.backward_input.count() > 0 ||
                                         std::any_of(of.units.begin(), of.units.end(), has_input));
  }
}

StageGraph stage_graph(const Plan& plan, const LinkSpec& link) {
  std::vector<int> num_stages;
  std::vector<int> lane_of;
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    num_stages.push_back(static_cast<int>(plan.modules[module].stages.size()));
    for (int stage = 0; stage < num_stages.back(); ++stage) {
      lane_of.push_back(plan.lane_of(static_cast<int>(module), stage));
    }
  }
  return stages_on(num_stages, lane_of, plan.lanes.size(), link);
}

StageGraph stage_graph(const Program& program, const LinkSpec& link) {
  std::vector<int> first_stage = {0};
  for (const int stages : program.num_stages) {
    first_stage.push_back(first_stage.back() + stages);
  }
  std::vector<int> lane_of(at(first_stage.back()), -1);
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const StageRef& ref : program.lanes[lane]) {
      lane_of[at(first_stage[at(ref.module)] + ref.stage)] = static_cast<int>(lane);
    }
  }
  for (std::size_t module = 0; module < program.num_stages.size(); ++module) {
    for (int stage = 0; stage < program.num_stages[module]; ++stage) {
      if (lane_of[at(first_stage[module] + stage)] < 0) {
        throw InvalidInput(
            fmt::format("stage {} of module {} is on no lane of the program", stage, module));
      }
    }
  }
  return stages_on(program.num_stages, lane_of, program.lanes.size(), link);
}

void ReplicaGraph::refuse(const UnitKey& unit) {
  throw InvalidInput(
      fmt::format("the program has no unit of module {}, stage {}, slot {}, group {}",
                  unit.module,
                  unit.stage,
                  unit.slot,
                  unit.group));
}

std::uint64_t ReplicaGraph::shape() const {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](int value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * kPrime;
    hash ^= hash >> 32;
  };
  for (const GraphGroup& group : groups) {
    for (const int value :
         {group.module, group.slot, group.first_backward, group.turn, group.served_end}) {
      mix(value);
    }
  }
  std::for_each(served.begin(), served.end(), mix);
  for (const GroupLists* lists : {&earlier, &later, &ended}) {
    std::for_each(lists->begin.begin(), lists->begin.end(), mix);
    std::for_each(lists->groups.begin(), lists->groups.end(), mix);
  }
  return hash;
}

void ReplicaGraph::link() {
  const int first_llm = first_llm_group();
  sources.begin.assign(groups.size() - at(first_llm) + 1, 0);
  for (const int taker : served) {
    ++sources.begin[at(taker - first_llm + 1)];
  }
  for (std::size_t i = 1; i < sources.begin.size(); ++i) {
    sources.begin[i] += sources.begin[i - 1];
  }
  sources.groups.resize(served.size());
  // Filled from each list's end: begin[i + 1] is moved down to where list i begins.
  for (int number = first_llm - 1; number >= 0; --number) {
    for (const int taker : served_by(group(number))) {
      sources.groups[at(--sources.begin[at(taker - first_llm + 1)])] = number;
    }
  }
  for (std::size_t i = 1; i + 1 < sources.begin.size(); ++i) {
    sources.begin[i] = sources.begin[i + 1];
  }
  sources.begin.back() = static_cast<int>(served.size());
  backward_order.resize(groups.size());
  std::iota(backward_order.begin(), backward_order.end(), 0);
  const ReleasedBefore before{*this};
  for (std::size_t module = 0; module + 1 < first_group.size(); ++module) {
    const auto begin = backward_order.begin() + first_group[module];
    const auto end = backward_order.begin() + first_group[module + 1];
    if (!std::is_sorted(begin, end, before)) {
      std::sort(begin, end, before);
    }
  }
}

int opening_slot(const ReplicaGraph& graph, int group) {
  return graph.group(graph.served_by(graph.group(group)).front()).slot;
}

std::vector<int> opening_order(const ReplicaGraph& graph) {
  std::vector<int> order = numbers_below(graph.first_llm_group());
  std::stable_sort(order.begin(), order.end(), [&graph](int a, int b) {
    return opening_slot(graph, a) < opening_slot(graph, b);
  });
  return order;
}

std::vector<int> releasing_order(const ReplicaGraph& graph) {
  std::vector<int> order = numbers_below(graph.first_llm_group());
  std::sort(order.begin(), order.end(), ReleasedBefore{graph});
  return order;
}

ReplicaGraph replica_graph(const StageGraph& stages,
                           const StepCosts& costs,
                           const std::vector<ModuleGroups>& groups) {
  std::vector<int> kind;
  for (const StageGraph::Stage& stage : stages.stages) {
    kind.push_back(stage.stage);
  }
  ReplicaGraph graph = graph_without_costs(stages, kind, groups);
  fill_costs(stages, costs, groups, graph);
  return graph;
}

ReplicaGraph graph_without_costs(const StageGraph& stages,
                                 const std::vector<int>& kind,
                                 const std::vector<ModuleGroups>& groups) {
  return GraphBuilder(stages, kind, groups).build();
}

void fill_costs(const StageGraph& stages,
                const StepCosts& costs,
                const std::vector<ModuleGroups>& groups,
                ReplicaGraph& graph) {
  graph.costs.clear();
  for (const GraphGroup& of : graph.groups) {
    const Group& group = groups[at(of.module)][at(of.slot)][at(of.group)];
    for (int index = 0; index < stages.num_stages(of.module); ++index) {
      const int cost = graph.cost_index(of, stages.number(of.module, index));
      if (at(cost) == graph.costs.size()) {  // the first stage of its kind
        graph.costs.push_back(cost_of(stages, costs, group, of.module, index));
      }
    }
  }
}

StepGraph step_graph(const Program& program, const StepCosts& costs) {
  StepGraph graph;
  graph.stages = stage_graph(program, costs.link);
  graph.replicas.reserve(program.replicas.size());
  for (std::size_t replica = 0; replica < program.replicas.size(); ++replica) {
    check_channels(graph.stages, program.replicas[replica], static_cast<int>(replica));
    graph.replicas.push_back(replica_graph(graph.stages, costs, program.replicas[replica].groups));
  }
  return graph;
}

}  // namespace entrain
