#include "entrain/core/spec/program.h"

#include <array>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 11> kOperationNames = {  // by OperationKind
    "forward",
    "backward",
    "backward_input",
    "backward_weight",
    "send",
    "receive",
    "reduce_gradients",
    "clip_norm",
    "optimizer_step",
    "gather_parameters",
    "sync_tied"};

std::string name_of_module(const Program& program, int module) {
  if (at(module) < program.module_names.size()) {
    return program.module_names[at(module)];
  }
  return module == program.llm_module() ? "llm" : fmt::format("encoder{}", module);
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
  return kOperationNames.at(static_cast<std::size_t>(kind));
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

}  // namespace entrain
