// Where a program exceeds its lanes' limits of activation memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

struct MemoryExcess {
  int replica = 0;
  int lane = 0;
  int position = 0;  // of the first operation in the lane's list that holds `bytes`
  std::int64_t bytes = 0;
  std::int64_t limit = 0;
  [[nodiscard]] std::int64_t over() const { return bytes - limit; }
};

// The lane and operation that exceed limits.bytes_of(lane) by the most bytes; the first of equal
// ones. No value if every lane keeps its limit.
//
// Cost  O(operations + lanes × groups), and that of step_graph() where it is not given.
std::optional<MemoryExcess> worst_excess(const Program& program,
                                         const StepCosts& costs,
                                         const PlanLimits& limits);
std::optional<MemoryExcess> worst_excess(const Program& program,
                                         const StepGraph& graph,
                                         const PlanLimits& limits);

// "lane 1 (llm 0) of replica 0 needs 3 GiB (3221225472 bytes) in slot 2 (forward llm 0 slot 2 group
// 0); allowed: 1 GiB (1073741824 bytes)"
std::string to_string(const Program& program, const MemoryExcess& excess);

}  // namespace entrain
