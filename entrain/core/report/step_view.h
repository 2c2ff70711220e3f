// One step as JSON to be drawn: its timelines, the causes of its time, its balance, its memory.
//
// Read first: step_view(). `entrain report` draws it, a run's folder holds it as step.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

struct StepViewRequest {
  const Plan* plan = nullptr;
  const StepCosts* costs = nullptr;
  const Program* program = nullptr;
  const Timeline* predicted = nullptr;  // with events, by simulate() of program and costs
  const Timeline* measured = nullptr;   // with events; may be null
  const std::vector<std::string>* sample_ids = nullptr;
  std::chrono::nanoseconds bound{0};  // step_lower_bound(); 0: not known
  std::int64_t step = 0;
};

inline constexpr int kStepViewVersion = 1;
inline constexpr const char* kStepViewName = "step.json";  // in a run's folder
// Operations of a timeline up to which each is kept. Above it those of a lane that follow one
// another are merged into 200 to 4,000 blocks a lane, and `thinned` says so.
inline constexpr std::int64_t kMostOperations = 200'000;

// {"version", "step", "headline", "facts", "timelines", "gap", "balance", "lanes"}; docs/report.md
// has the format. Times are whole nanoseconds.
//
// Cost  O(events log events).
Json step_view(const StepViewRequest& request, std::int64_t most_operations = kMostOperations);

// The step in a sentence or two: the share of arithmetic, and what most of the rest waits for.
std::vector<std::string> headline_of(const StepViewRequest& request);

}  // namespace entrain
