#include "entrain/core/simulator/tables.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain::simulation {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

void check_channels(const StageTable& stages, const ReplicaProgram& replica, int replica_index) {
  for (std::size_t i = 0; i < replica.channels.size(); ++i) {
    const Channel& channel = replica.channels[i];
    int source = stages.lane(channel.producer.module, channel.producer.stage);
    int target = stages.lane(channel.consumer.module, channel.consumer.stage);
    if (channel.gradient) {
      std::swap(source, target);
    }
    if (source != channel.source_lane || target != channel.target_lane) {
      throw InvalidInput(
          fmt::format("replica {} channel {}: runs from lane {} to lane {}, but its stages stand "
                      "on lanes {} and {}",
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

StageTable::StageTable(const Program& program) : num_stages_(program.num_stages) {
  int total = 0;
  for (const int stages : num_stages_) {
    first_stage_.push_back(total);
    total += stages;
  }
  lane_.assign(at(total), -1);
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const StageRef& ref : program.lanes[lane]) {
      lane_[number(ref.module, ref.stage)] = static_cast<int>(lane);
    }
  }
  crosses_.assign(at(total), 0);
  for (int module = 0; module < num_modules(); ++module) {
    for (int stage = 0; stage < num_stages(module); ++stage) {
      if (lane(module, stage) < 0) {
        throw InvalidInput(
            fmt::format("stage {} of module {} stands on no lane of the program", stage, module));
      }
      const bool last = stage + 1 == num_stages(module);
      if (!(last && module == llm_module())) {
        const int next = last ? lane(llm_module(), 0) : lane(module, stage + 1);
        crosses_[number(module, stage)] = next != lane(module, stage) ? 1 : 0;
      }
    }
  }
}

ReplicaTables::ReplicaTables(const Program& program,
                             const StageTable& stages,
                             const StepCosts& costs,
                             int replica)
    : stages_(&stages) {
  const ReplicaProgram& part = program.replicas[at(replica)];
  check_channels(stages, part, replica);
  number_units(part);
  add_totals(part, costs);
  add_serving(part);
  add_links(part);
}

void ReplicaTables::number_units(const ReplicaProgram& replica) {
  int units = 0;
  for (int module = 0; module < stages_->num_modules(); ++module) {
    const auto& slots = replica.groups[at(module)];
    modules_.push_back({static_cast<int>(slots.size()),
                        stages_->num_stages(module),
                        static_cast<int>(first_group_.size()),
                        units});
    int groups = 0;
    for (const std::vector<Group>& slot : slots) {
      first_group_.push_back(groups);
      groups += static_cast<int>(slot.size());
    }
    first_group_.push_back(groups);
    units += groups * modules_.back().num_stages;
  }
  totals_.resize(at(units));
}

void ReplicaTables::add_totals(const ReplicaProgram& replica, const StepCosts& costs) {
  std::vector<std::size_t> whole;
  std::vector<const WorkItem*> chunks;
  std::size_t unit = 0;
  for (int module = 0; module < stages_->num_modules(); ++module) {
    for (const std::vector<Group>& slot : replica.groups[at(module)]) {
      for (const Group& group : slot) {
        whole.clear();
        chunks.clear();
        for (const WorkItem& item : group.items) {
          if (item.is_chunk()) {
            chunks.push_back(&item);
          } else {
            whole.push_back(at(costs.unit_of(module, item)));
          }
        }
        for (int stage = 0; stage < stages_->num_stages(module); ++stage, ++unit) {
          const StageCosts& cost = costs.modules[at(module)].stages[at(stage)];
          UnitTotals total;
          total.forward = cost.launch.forward.count();
          total.backward_input = cost.launch.backward_input.count();
          total.backward_weight = cost.launch.backward_weight.count();
          total.split = cost.launch.split.count();
          const auto add = [&total](const UnitCost& part) {
            total.forward += part.time.forward.count();
            total.backward_input += part.time.backward_input.count();
            total.backward_weight += part.time.backward_weight.count();
            total.split += part.time.split.count();
            total.activation_bytes += part.activation_bytes;
            total.output_bytes += part.output_bytes;
            total.recompute.all += part.recompute.all;
            total.recompute.largest += part.recompute.largest;
          };
          for (const std::size_t item : whole) {
            add(cost.units[item]);
          }
          for (const WorkItem* chunk : chunks) {
            add(unit_cost(costs, module, stage, *chunk));
            total.key_value_bytes += key_value_bytes(costs, stage, *chunk);
          }
          total.takes_backward = group.takes_backward[at(stage)] != 0;
          totals_[unit] = total;
        }
      }
    }
  }
}

void ReplicaTables::check_llm_group(const LlmGroupRef& ref) const {
  const ModuleEntry& llm = modules_.back();
  const bool slot_exists = ref.slot >= 0 && ref.slot < llm.num_slots;
  const std::size_t entry = at(llm.first_slot + (slot_exists ? ref.slot : 0));
  ENTRAIN_INVARIANT(
      slot_exists && ref.group >= 0 && ref.group < first_group_[entry + 1] - first_group_[entry],
      fmt::format("no group {} in LLM slot {}", ref.group, ref.slot));
}

void ReplicaTables::add_serving(const ReplicaProgram& replica) {
  const int num_llm_groups = first_group_.back();
  serving_.begin.assign(at(num_llm_groups + 1), 0);
  num_takers_.assign(totals_.size(), 0);
  // Calls visit(last-stage unit, LLM group served, crosses) for every part.
  const auto for_each_part = [&](const auto& visit) {
    for (int module = 0; module < stages_->llm_module(); ++module) {
      const ModuleEntry& entry = modules_[at(module)];
      const bool crosses = stages_->output_crosses(module, entry.num_stages - 1);
      int unit = entry.first_unit + entry.num_stages - 1;
      for (const std::vector<Group>& slot : replica.groups[at(module)]) {
        for (const Group& group : slot) {
          for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
            const LlmGroupRef served = group.served(part);
            check_llm_group(served);
            visit(unit, llm_group(llm_unit(served)), crosses);
          }
          unit += entry.num_stages;
        }
      }
    }
  };
  for_each_part([&](int unit, int served, bool /*crosses*/) {
    ++serving_.begin[at(served + 1)];
    ++num_takers_[at(unit)];
  });
  for (int group = 0; group < num_llm_groups; ++group) {
    serving_.begin[at(group + 1)] += serving_.begin[at(group)];
  }
  serving_.values.resize(at(serving_.begin.back()));
  std::vector<int> next(serving_.begin.begin(), serving_.begin.end() - 1);
  for_each_part([&](int unit, int served, bool crosses) {
    serving_.values[at(next[at(served)]++)] = {unit, crosses};
  });
}

void ReplicaTables::add_links(const ReplicaProgram& replica) {
  const auto& slots = replica.groups.back();
  std::vector<const Group*> groups;  // of the LLM, by number
  for (const std::vector<Group>& slot : slots) {
    for (const Group& group : slot) {
      groups.push_back(&group);
      has_links_ = has_links_ || !group.earlier.empty() || !group.later.empty();
    }
  }
  if (!has_links_) {
    return;
  }
  const int step = modules_.back().num_stages;
  const auto number = [&](const LlmGroupRef& ref) { return llm_group(llm_unit(ref)); };
  // Where the samples of a group's chunks end: links go to higher numbers.
  std::vector<int> end(groups.size());
  for (std::size_t g = groups.size(); g > 0; --g) {
    end[g - 1] = static_cast<int>(g) - 1;
    for (const LlmGroupRef& ref : groups[g - 1]->later) {
      check_llm_group(ref);
      ENTRAIN_INVARIANT(number(ref) >= static_cast<int>(g), "a later chunk in an earlier group");
      end[g - 1] = std::max(end[g - 1], end[at(number(ref))]);
    }
  }
  for (Lists<int>* lists : {&earlier_, &later_, &ended_}) {
    lists->begin.push_back(0);
  }
  for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
    for (const LlmGroupRef& ref : groups[at(group)]->earlier) {
      check_llm_group(ref);
      earlier_.values.push_back((number(ref) - group) * step);
    }
    for (const LlmGroupRef& ref : groups[at(group)]->later) {
      later_.values.push_back((number(ref) - group) * step);
    }
    for (int other = 0; other < group; ++other) {
      if (end[at(other)] == group) {
        ended_.values.push_back((other - group) * step);
      }
    }
    for (Lists<int>* lists : {&earlier_, &later_, &ended_}) {
      lists->begin.push_back(static_cast<int>(lists->values.size()));
    }
  }
}

int ReplicaTables::unit_of(const UnitKey& key) const {
  if (key.module >= 0 && key.module < stages_->num_modules() && key.slot >= 0 && key.group >= 0) {
    const ModuleEntry& module = modules_[at(key.module)];
    if (key.slot < module.num_slots && key.stage >= 0 && key.stage < module.num_stages) {
      const int group = first_group_[at(module.first_slot + key.slot)] + key.group;
      if (group < first_group_[at(module.first_slot + key.slot + 1)]) {
        return module.first_unit + group * module.num_stages + key.stage;
      }
    }
  }
  throw InvalidInput(
      fmt::format("the program has no unit of module {}, stage {}, slot {}, group {}",
                  key.module,
                  key.stage,
                  key.slot,
                  key.group));
}

int ReplicaTables::llm_unit(const LlmGroupRef& ref) const {
  const ModuleEntry& llm = modules_.back();
  return llm.first_unit +
         (first_group_[at(llm.first_slot + ref.slot)] + ref.group) * llm.num_stages;
}

}  // namespace entrain::simulation
