// Replays a Program against the cost model: makespan, busy time, memory and timeline.
//
// Read first: simulate(). The rules of time:
// - a lane runs its compute operations one after another in list order; a compute operation starts
//   when the one before it on its lane has finished and all its inputs have arrived;
// - a send starts when what stands before it on its lane has finished (its producer stands directly
//   before it, or behind its producer's other sends) and the channel is free; channels are first
//   in, first out and do not share links; a send does not hold its lane; it takes transfer_time();
// - a receive costs no compute time; what waits for it is the operation that needs its message;
// - reduce_gradients waits for all replicas' lane to arrive and then takes the reduce time of the
//   lane's stages; clip_norm waits for all lanes of all replicas and takes no time; optimizer_step
//   takes the optimizer time of the lane's stages.
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

// Shapes   result.lanes: [replica][lane]; busy and finish are those of operations with a unit
//          (forward, backward and its halves); makespan is the last finish of any operation.
// Ensures  every operation runs once; deterministic; integer arithmetic only.
// Memory   per lane: activation bytes from a group's forward to its backward, of a split one to the
//          weight half (to the end of the forward where it takes no part in backward); encoder
//          outputs on the LLM's first lane from receive (or forward, on the same lane) until the
//          last backward of the groups they serve (forward, for groups that take no part in it).
//          A chunk's keys and values are among its activation bytes; where it takes no part in
//          backward they stay, by themselves, until the forward of its sample's last chunk. Their
//          gradients, as many bytes again, are there from that chunk's backward, which makes them,
//          to the chunk's own (input half), which takes them in. Later chunks read where earlier
//          ones wrote: no copies.
//          peak_bytes is the largest of memory_over_time().
// Events   by replica, lane and operation. A receive has its send's times; a wait is the time for
//          which the lane stood still before an operation; clip_norm has its wait only.
// Throws   InvalidInput when the program cannot finish, naming the operations that wait for each
//          other; for a chunk that is no range within its sample's tokens; for operations that
//          have no cost yet (gather_parameters, sync_tied).
// Cost     O(operations + parts + items × stages).
Timeline simulate(const Program& program,
                  const StepCosts& costs,
                  const SimulateOptions& options = {});

// Lower bound on the step time of any order of this program's operations on their lanes: for the
// heaviest lane, its compute work plus the cheapest time before its first and after its last
// operation. (The plain lane bound; step-wide operations left out.)
//
// The time before an operation is that of the longest chain of operations and transfers it depends
// on, every lane free for it.
// Cost     O(operations + parts + items × stages).
std::chrono::nanoseconds lane_bound(const Program& program, const StepCosts& costs);

// Activation bytes of one lane while each operation of its list runs, in list order: what an
// operation frees is still counted.
// Cost     O(operations of the lane + parts + items × stages).
std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepCosts& costs,
                                           int replica,
                                           int lane);

}  // namespace entrain
