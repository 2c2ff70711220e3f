// The fields of a record's lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/simulator.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain::record {

// What `run` returns; "refused=…" for InvalidInput and NothingFits: the type and the numbers of the
// message, whose words may change.
std::string or_refusal(const std::function<std::string()>& run);

// The first digits of a digest: enough to see that something changed.
std::string short_digest(std::string_view text, std::size_t digits = 12);

// A digest for every lane of its operations with their keys, channels and work items:
// "a0b1c2,d3e4f5/…", a slash between replicas.
std::string orders_of(const Program& program);

// "makespan_ns=… events=… peak_bytes=…": `events` is a digest of all times.
std::string times_of(const Program& program,
                     const StepCosts& costs,
                     const SimulateOptions& options = {});

// Everything of one step: the assignment's digest, its program's orders, whether the program is
// valid under the plan's limits, its times, and the bound on the step time.
std::string fields_of_step(const Plan& plan,
                           const StepCosts& costs,
                           const StepAssignment& assignment,
                           std::string_view schedule);

// Assigns with the plan's schedule and limits, then as fields_of_step().
std::string fields_of_policy(const std::string& policy, const Plan& plan, const StepCosts& costs);

// Limits every lane to so many eighths of what `lpt-2d` with `1f1b` needs there.
void limit_memory(int eighths, const StepCosts& costs, Plan& plan);

}  // namespace entrain::record
