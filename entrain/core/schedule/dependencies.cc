#include "entrain/core/schedule/dependencies.h"

namespace entrain {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Last-stage encoder units by the LLM group they serve.
std::vector<std::vector<int>> serving_units(const std::vector<ModuleGroups>& groups,
                                            const UnitTable& table) {
  const int first_llm_group = table.first_group(table.llm_module(), 0);
  std::vector<std::vector<int>> result(table.groups().size() - at(first_llm_group));
  for (int number = 0; number < first_llm_group; ++number) {
    const GroupEntry& entry = table.entry(number);
    const Group& group = groups[at(entry.module)][at(entry.slot)][at(entry.group)];
    for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
      result[at(table.llm_group(group.served(part)) - first_llm_group)].push_back(
          table.unit_number(number, table.num_stages(entry.module) - 1));
    }
  }
  return result;
}

}  // namespace

UnitDependencies::UnitDependencies(const std::vector<ModuleGroups>& groups,
                                   const UnitTable& table) {
  const int llm = table.llm_module();
  const std::vector<std::vector<int>> serving = serving_units(groups, table);
  const int first_llm_group = table.first_group(llm, 0);
  for (Lists* lists : {&forward_, &backward_}) {
    lists->begin.reserve(at(table.num_units() + 1));
    lists->begin.push_back(0);
    lists->units.reserve(at(table.num_units()));
  }
  for (int number = 0; number < static_cast<int>(table.groups().size()); ++number) {
    const GroupEntry& entry = table.entry(number);
    const Group& group = groups[at(entry.module)][at(entry.slot)][at(entry.group)];
    const int last_stage = table.num_stages(entry.module) - 1;
    for (int stage = 0; stage <= last_stage; ++stage) {
      const int unit = table.unit_number(number, stage);
      if (stage > 0) {
        forward_.units.push_back(unit - 1);
      } else if (entry.module == llm) {
        const std::vector<int>& units = serving[at(number - first_llm_group)];
        forward_.units.insert(forward_.units.end(), units.begin(), units.end());
      }
      for (const LlmGroupRef& ref : group.earlier) {
        forward_.units.push_back(table.unit_number(table.llm_group(ref), stage));
      }
      forward_.begin.push_back(static_cast<int>(forward_.units.size()));
      if (stage >= entry.first_backward_stage) {
        if (stage < last_stage) {
          backward_.units.push_back(unit + 1);
        } else if (entry.module != llm) {
          for (std::size_t part = 0; part < group.llm_slots.size(); ++part) {
            backward_.units.push_back(table.unit_number(table.llm_group(group.served(part)), 0));
          }
        }
        for (const LlmGroupRef& ref : group.later) {
          backward_.units.push_back(table.unit_number(table.llm_group(ref), stage));
        }
      }
      backward_.begin.push_back(static_cast<int>(backward_.units.size()));
    }
  }
}

}  // namespace entrain
