#include "entrain/core/simulator/over_limit.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

std::string bytes_text(std::int64_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
}

}  // namespace

std::optional<MemoryExcess> worst_excess(const Program& program,
                                         const StepCosts& costs,
                                         const PlanLimits& limits) {
  return worst_excess(program, step_graph(program, costs), limits);
}

std::optional<MemoryExcess> worst_excess(const Program& program,
                                         const StepGraph& graph,
                                         const PlanLimits& limits) {
  std::optional<MemoryExcess> worst;
  for (int replica = 0; replica < static_cast<int>(program.replicas.size()); ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      const std::int64_t limit = limits.bytes_of(lane);
      if (limit == 0) {
        continue;
      }
      const std::vector<std::int64_t> held = memory_over_time(program, graph, replica, lane);
      const auto peak = std::max_element(held.begin(), held.end());
      if (peak != held.end() && *peak > limit && (!worst || *peak - limit > worst->over())) {
        worst = MemoryExcess{replica, lane, static_cast<int>(peak - held.begin()), *peak, limit};
      }
    }
  }
  return worst;
}

std::string to_string(const Program& program, const MemoryExcess& excess) {
  std::string stages;
  for (const StageRef& ref : program.lanes[at(excess.lane)]) {
    const std::string module = at(ref.module) < program.module_names.size()
                                   ? program.module_names[at(ref.module)]
                                   : fmt::format("module {}", ref.module);
    stages += fmt::format("{}{} {}", stages.empty() ? "" : ", ", module, ref.stage);
  }
  const Operation& operation =
      program.replicas[at(excess.replica)].lanes[at(excess.lane)][at(excess.position)];
  return fmt::format("lane {} ({}) of replica {} needs {} in slot {} ({}); allowed: {}",
                     excess.lane,
                     stages,
                     excess.replica,
                     bytes_text(excess.bytes),
                     operation.unit.slot,
                     to_string(program, operation),
                     bytes_text(excess.limit));
}

}  // namespace entrain
