// One step in words: the slots of every sample, what waits for what, and the cost of other
// choices.
//
// Read first: explain(), then to_string().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/report/alternatives.h"
#include "entrain/core/report/critical_path.h"
#include "entrain/core/report/gap_causes.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/step/step.h"

namespace entrain {

struct ExplainRequest {
  const Plan* plan = nullptr;  // includes the schedule
  const StepCosts* costs = nullptr;
  const SimulatedStep* step = nullptr;  // of plan and costs, with events and bound
  const BatchNames* names = nullptr;
  int replica = -1;  // whose slots and lanes are shown; -1: the slowest
  int slot = -1;     // the one slot that is shown; -1: all
  int sample = -1;   // whose story is shown; -1: those of the heaviest samples of the replica
  int stories = 3;   // how many of these, >= 0
  // Of the same policy's step without memory limits, to be named beside it; 0: none.
  std::int64_t unlimited_ns = 0;
};

// Work in one slot of one module.
struct SlotLoad {
  std::vector<int> samples;  // each once, in packing order
  int num_units = 0;         // segments, or samples and chunks of the LLM
  std::int64_t work_ns = 0;  // forward and backward over the module's stages, launches left out
  double of_mean = 0;        // work_ns over the mean of the replica's slots
};

// One kind of operation on one lane, and its share of the critical path.
struct PathShare {
  std::string what;  // "forward", "backward", "transfer" …
  int replica = 0;
  int lane = 0;
  std::int64_t time_ns = 0;
};

// The slots of a sample, and the cost of its other choices.
struct SampleStory {
  int sample = 0;
  int replica = 0;
  std::vector<std::vector<int>> segment_slots;  // [encoder][segment]
  std::vector<int> llm_slots;                   // one, or those of its chunks
  std::vector<std::int64_t> work_ns;            // [module]
  std::vector<double> of_mean;                  // [module] over the mean of all samples
  std::vector<Alternative> alternatives;
};

struct Explanation {
  std::int64_t step_ns = 0;
  std::int64_t bound_ns = 0;
  int replica = 0;
  // The replica's lane with the most work, and its time by cause; `shared_ns` is the mean of its
  // work over replicas, the least that the busiest of these replicas can have.
  LaneAccount busiest;
  std::int64_t shared_ns = 0;
  GapCauses causes;                          // of step_ns - bound_ns, on the slowest replica
  std::vector<LaneAccount> lanes;            // of the replica
  std::vector<std::int64_t> peak_bytes;      // likewise
  std::vector<PathShare> path;               // largest first
  std::vector<std::vector<SlotLoad>> slots;  // [slot][module]
  std::vector<Deferral> deferrals;           // of the replica
  std::vector<SampleStory> stories;

  [[nodiscard]] double gap() const {
    return bound_ns > 0 ? static_cast<double>(step_ns) / static_cast<double>(bound_ns) - 1 : 0;
  }
};

// Throws  InvalidInput for a replica or slot that does not exist.
// Cost    per story that of best_alternatives().
Explanation explain(const ExplainRequest& request);

// For people. `slot` as in the request.
std::string to_string(const Explanation& explanation, const ExplainRequest& request);
Json to_json(const Explanation& explanation, const ExplainRequest& request);

}  // namespace entrain
