#include "entrain/core/simulator/tables.h"

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
  std::vector<std::size_t> items;
  std::size_t unit = 0;
  for (std::size_t module = 0; module < replica.groups.size(); ++module) {
    for (const std::vector<Group>& slot : replica.groups[module]) {
      for (const Group& group : slot) {
        items.clear();
        for (const WorkItem& item : group.items) {
          if (item.is_chunk()) {
            throw InvalidInput(
                fmt::format("sample {} is cut into chunks, which have no costs yet", item.sample));
          }
          items.push_back(at(costs.unit_of(static_cast<int>(module), item)));
        }
        for (std::size_t stage = 0; stage < at(modules_[module].num_stages); ++stage, ++unit) {
          const StageCosts& cost = costs.modules[module].stages[stage];
          UnitTotals total;
          total.forward = cost.launch.forward.count();
          total.backward_input = cost.launch.backward_input.count();
          total.backward_weight = cost.launch.backward_weight.count();
          for (const std::size_t item : items) {
            const UnitCost& part = cost.units[item];
            total.forward += part.time.forward.count();
            total.backward_input += part.time.backward_input.count();
            total.backward_weight += part.time.backward_weight.count();
            total.activation_bytes += part.activation_bytes;
            total.output_bytes += part.output_bytes;
          }
          total.takes_backward = group.takes_backward[stage] != 0;
          totals_[unit] = total;
        }
      }
    }
  }
}

void ReplicaTables::add_serving(const ReplicaProgram& replica) {
  const ModuleEntry& llm = modules_.back();
  first_serving_.assign(at(llm.num_slots + 1), 0);
  num_takers_.assign(totals_.size(), 0);
  // Calls visit(last-stage unit, LLM slot, crosses) for every part.
  const auto for_each_part = [&](const auto& visit) {
    for (int module = 0; module < stages_->llm_module(); ++module) {
      const ModuleEntry& entry = modules_[at(module)];
      const bool crosses = stages_->output_crosses(module, entry.num_stages - 1);
      int unit = entry.first_unit + entry.num_stages - 1;
      for (const std::vector<Group>& slot : replica.groups[at(module)]) {
        for (const Group& group : slot) {
          for (const int served : group.llm_slots) {
            visit(unit, served, crosses);
          }
          unit += entry.num_stages;
        }
      }
    }
  };
  for_each_part([&](int unit, int slot, bool /*crosses*/) {
    ENTRAIN_INVARIANT(slot >= 0 && slot < llm.num_slots,
                      fmt::format("a group serves LLM slot {} of {}", slot, llm.num_slots));
    ++first_serving_[at(slot + 1)];
    num_takers_[at(unit)] += num_llm_groups(slot);
  });
  for (int slot = 0; slot < llm.num_slots; ++slot) {
    first_serving_[at(slot + 1)] += first_serving_[at(slot)];
  }
  serving_.resize(at(first_serving_.back()));
  std::vector<int> next(first_serving_.begin(), first_serving_.end() - 1);
  for_each_part([&](int unit, int slot, bool crosses) {
    serving_[at(next[at(slot)]++)] = {unit, crosses};
  });
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

int ReplicaTables::first_llm_unit(int slot) const {
  const ModuleEntry& llm = modules_.back();
  return llm.first_unit + first_group_[at(llm.first_slot + slot)] * llm.num_stages;
}

int ReplicaTables::num_llm_groups(int slot) const {
  const std::size_t entry = at(modules_.back().first_slot + slot);
  return first_group_[entry + 1] - first_group_[entry];
}

}  // namespace entrain::simulation
