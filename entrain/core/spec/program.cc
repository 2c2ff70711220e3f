#include "entrain/core/spec/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

std::string name_of_module(const Program& program, int module) {
  if (at(module) < program.module_names.size()) {
    return program.module_names[at(module)];
  }
  return module == program.llm_module() ? "llm" : fmt::format("encoder{}", module);
}

Json stage_json(const Program& program, const StageRef& ref) {
  return Json::array({name_of_module(program, ref.module), ref.stage});
}

Json item_json(const WorkItem& item) {
  Json entry = {{"sample", item.sample}};
  if (item.segment >= 0) {
    entry["segment"] = item.segment;
  }
  if (item.is_chunk()) {
    entry["tokens"] = {item.token_begin, item.token_end};
  }
  return entry;
}

Json group_json(const Group& group) {
  Json items = Json::array();
  for (const WorkItem& item : group.items) {
    items.push_back(item_json(item));
  }
  Json takes_backward = Json::array();
  for (const char takes : group.takes_backward) {
    takes_backward.push_back(takes != 0);
  }
  Json document = {{"items", items},
                   {"llm_slots", group.llm_slots},
                   {"part_sizes", group.part_sizes},
                   {"takes_backward", takes_backward}};
  if (!group.llm_groups.empty()) {
    document["llm_groups"] = group.llm_groups;
  }
  for (const LlmGroupRef& ref : group.earlier) {
    document["earlier"].push_back({ref.slot, ref.group});
  }
  for (const LlmGroupRef& ref : group.later) {
    document["later"].push_back({ref.slot, ref.group});
  }
  return document;
}

Json replica_json(const Program& program, const ReplicaProgram& replica) {
  Json modules = Json::object();
  for (std::size_t module = 0; module < replica.groups.size(); ++module) {
    Json slots = Json::array();
    for (const std::vector<Group>& slot : replica.groups[module]) {
      Json groups = Json::array();
      for (const Group& group : slot) {
        groups.push_back(group_json(group));
      }
      slots.push_back(std::move(groups));
    }
    modules[name_of_module(program, static_cast<int>(module))] = std::move(slots);
  }
  Json channels = Json::array();
  for (const Channel& channel : replica.channels) {
    channels.push_back({{"source_lane", channel.source_lane},
                        {"target_lane", channel.target_lane},
                        {"producer", stage_json(program, channel.producer)},
                        {"consumer", stage_json(program, channel.consumer)},
                        {"gradient", channel.gradient}});
  }
  Json lanes = Json::array();
  for (const std::vector<Operation>& lane : replica.lanes) {
    Json operations = Json::array();
    for (const Operation& operation : lane) {
      operations.push_back(to_string(program, operation));
    }
    lanes.push_back(std::move(operations));
  }
  return {{"groups", modules}, {"channels", channels}, {"lanes", lanes}};
}

// Last-stage units of the encoder groups that serve an LLM group.
void add_serving(const Program& program,
                 const ReplicaProgram& replica,
                 const LlmGroupRef& llm_group,
                 std::vector<UnitKey>& units) {
  for (int module = 0; module < program.llm_module(); ++module) {
    const auto& slots = replica.groups[at(module)];
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      for (std::size_t g = 0; g < slots[slot].size(); ++g) {
        const Group& group = slots[slot][g];
        for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
          if (group.served(part) == llm_group) {
            units.push_back({module,
                             program.num_stages[at(module)] - 1,
                             static_cast<int>(slot),
                             static_cast<int>(g)});
          }
        }
      }
    }
  }
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
      return "forward";
    case OperationKind::kBackward:
      return "backward";
    case OperationKind::kBackwardInput:
      return "backward_input";
    case OperationKind::kBackwardWeight:
      return "backward_weight";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kReceive:
      return "receive";
    case OperationKind::kReduceGradients:
      return "reduce_gradients";
    case OperationKind::kClipNorm:
      return "clip_norm";
    case OperationKind::kOptimizerStep:
      return "optimizer_step";
    case OperationKind::kGatherParameters:
      return "gather_parameters";
    case OperationKind::kSyncTied:
      return "sync_tied";
  }
  ENTRAIN_INVARIANT(false, "unknown operation kind");
}

const Group& group_of(const ReplicaProgram& replica, const UnitKey& unit) {
  const auto holds = [](const auto& list, int index) {
    return index >= 0 && at(index) < list.size();
  };
  ENTRAIN_INVARIANT(
      holds(replica.groups, unit.module) && holds(replica.groups[at(unit.module)], unit.slot) &&
          holds(replica.groups[at(unit.module)][at(unit.slot)], unit.group),
      fmt::format("no group {} in slot {} of module {}", unit.group, unit.slot, unit.module));
  return replica.groups[at(unit.module)][at(unit.slot)][at(unit.group)];
}

std::vector<UnitKey> forward_inputs(const Program& program, int replica, const UnitKey& unit) {
  std::vector<UnitKey> inputs;
  const ReplicaProgram& groups = program.replicas[at(replica)];
  if (unit.stage > 0) {
    inputs.push_back({unit.module, unit.stage - 1, unit.slot, unit.group});
  } else if (unit.module == program.llm_module()) {
    add_serving(program, groups, {unit.slot, unit.group}, inputs);
  }
  for (const LlmGroupRef& ref : group_of(groups, unit).earlier) {
    inputs.push_back({unit.module, unit.stage, ref.slot, ref.group});
  }
  return inputs;
}

std::vector<UnitKey> backward_inputs(const Program& program, int replica, const UnitKey& unit) {
  std::vector<UnitKey> inputs;
  const int llm = program.llm_module();
  const Group& group = group_of(program.replicas[at(replica)], unit);
  if (unit.stage + 1 < program.num_stages[at(unit.module)]) {
    inputs.push_back({unit.module, unit.stage + 1, unit.slot, unit.group});
  } else if (unit.module != llm) {
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      const LlmGroupRef served = group.served(part);
      inputs.push_back({llm, 0, served.slot, served.group});
    }
  }
  for (const LlmGroupRef& ref : group.later) {
    inputs.push_back({unit.module, unit.stage, ref.slot, ref.group});
  }
  return inputs;
}

std::string to_string(const Program& program, const Operation& operation) {
  std::string text(name_of(operation.kind));
  if (operation.unit.module >= 0) {
    text += fmt::format(" {} {} slot {} group {}",
                        name_of_module(program, operation.unit.module),
                        operation.unit.stage,
                        operation.unit.slot,
                        operation.unit.group);
  }
  if (operation.channel >= 0) {
    text += fmt::format(" channel {}", operation.channel);
  }
  return text;
}

Json to_json(const Program& program) {
  Json modules = Json::object();
  for (std::size_t module = 0; module < program.num_stages.size(); ++module) {
    modules[name_of_module(program, static_cast<int>(module))] = program.num_stages[module];
  }
  Json lanes = Json::array();
  for (const std::vector<StageRef>& lane : program.lanes) {
    Json stages = Json::array();
    for (const StageRef& ref : lane) {
      stages.push_back(stage_json(program, ref));
    }
    lanes.push_back(std::move(stages));
  }
  Json replicas = Json::array();
  for (const ReplicaProgram& replica : program.replicas) {
    replicas.push_back(replica_json(program, replica));
  }
  return {{"version", 1},
          {"schedule", program.schedule},
          {"stages", modules},
          {"lanes", lanes},
          {"replicas", replicas}};
}

}  // namespace entrain
