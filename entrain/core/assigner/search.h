// Local search on simulated step time.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/loads.h"
#include "entrain/core/assigner/placement.h"

namespace entrain {

// A placement with what its replicas take.
struct Evaluated {
  Placement placement;
  std::vector<ReplicaTimes> times;  // [replica]
};

// Changes the placement move by move and keeps what makes the step faster:
// - a sample to another slot, or two of like size swapped, within a replica or between two;
// - a sample's LLM work to a later slot than its segments, segments to earlier slots and back;
// - two slots swapped; two merged or one split where the number of slots is free.
// Three of five moves are on the slowest replica. A move is kept where Σ time²⁴ over replicas does
// not rise, so that replicas which are not the slowest improve too; the best step time seen is
// returned. Plain descent was chosen over annealing on one run per setting, a difference within the
// noise: no claim that it is the better of the two.
//
// Requires  every replica of `start` keeps limits.bytes_per_lane.
// Ensures   so does the result, and its step time is at most that of `start`; equal arguments give
//           equal results; stops at `bound_ns` or when the evaluator has spent
//           limits.evaluations.
Evaluated local_search(const AssignRequest& request,
                       const BatchLoads& loads,
                       std::int64_t bound_ns,
                       StepEvaluator& evaluator,
                       Evaluated start);

}  // namespace entrain
