// Replays a Program against the cost model: makespan, busy time, memory and timeline.
//
// Read first: simulate(). The rules of time:
// - a lane runs its compute operations one after another in list order; a compute operation starts
// when
//   the one before it on its lane has finished and all its inputs have arrived;
// - a send starts when its producer has finished and the channel is free (channels are first in,
// first
//   out and do not share links); it does not hold its lane; it takes transfer_time(link, bytes);
// - a receive costs no compute time; what waits for it is the operation that needs its message;
// - reduce_gradients waits for all replicas' lane to arrive and then takes the stage's reduce time;
//   clip_norm waits for all lanes of all replicas; optimizer_step takes the stages' optimizer time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

struct SimulateOptions {
  bool events = false;  // fill Timeline::events
};

// Ensures  every operation runs once; deterministic; integer arithmetic only.
// Memory   per lane: activation bytes from a group's forward to its backward (to the end of the
// forward
//          where it takes no part in backward), encoder outputs on the LLM's first lane from
//          receive (or forward, on the same lane) until the last slot's backward they serve.
// Throws   InvalidInput when the program cannot finish, naming the operations that wait for each
// other. Cost     O(operations + dependencies).
Timeline simulate(const Program& program,
                  const StepCosts& costs,
                  const SimulateOptions& options = {});

// Lower bound on the step time of any order of this program's operations on their lanes: for the
// heaviest lane, its compute work plus the cheapest time before its first and after its last
// operation. (The plain lane bound; step-wide operations left out.)
std::chrono::nanoseconds lane_bound(const Program& program, const StepCosts& costs);

// Activation bytes of one lane after each operation of its list, in list order.
std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepCosts& costs,
                                           int replica,
                                           int lane);

}  // namespace entrain
