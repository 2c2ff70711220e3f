// Replays a Program against the cost model: makespan, busy time, memory and timeline.
//
// Read first: simulate(). The rules of time:
// - a lane runs its compute operations one after another in list order; a compute operation starts
//   when the one before it on its lane has finished and all its inputs have arrived;
// - a send is requested when the preceding operation of its lane has finished (its producer is
//   directly before it, or before its producer's other sends); the send starts when its link is
//   free and takes transfer_time() of that link, latency included. SimulateOptions::sharing says
//   which messages share a link; a link carries one at a time, first come, first
//   served. Of several requests at one time the first by replica and lane is served, among those
//   that are known once everything that needs none of them has run;
// - a send does not block its lane, unless SimulateOptions::blocking_sends: then the operation
//   after it on its lane starts after its arrival;
// - a receive costs no compute time; the operation that needs its message waits for it;
// - reduce_gradients waits for the lane on all replicas and then takes the reduce time of the
//   lane's stages (buckets change this); clip_norm waits for all lanes of all replicas and takes no
//   time; optimizer_step takes the optimizer time of the lane's stages, the gathering of sharded
//   parameters included: gather_parameters itself takes none.
//
// With n > 0 buckets per stage (StepCosts::reduce_buckets, unless SimulateOptions overrides it)
// reductions overlap compute:
// - the gradients of a stage are reduced in n equal buckets. The stage's last operation with weight
//   gradients on its lane (backward or its weight half) completes them one after another, at equal
//   intervals of its time; a bucket is ready when all replicas have completed theirs (at the step's
//   start for a replica without such an operation);
// - a lane's buckets run one after another on a separate line: its last stage first, the other
//   stages in falling order, without stages that have no trainable parameters; a bucket starts when
//   it is ready and the previous one has finished, and takes its n-th part of the stage's reduce
//   time;
// - reduce_gradients then takes no time itself: it waits until the lane's last bucket is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/simulator/network.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

// The defaults match the engine.
struct SimulateOptions {
  bool events = false;          // fill Timeline::events
  bool blocking_sends = false;  // a send blocks its lane
  LinkSharing sharing = LinkSharing::kChannel;
  Network network{};  // empty: StepCosts::link everywhere
  // Buckets per stage, instead of those of the costs; 0: reductions run at the end of the step.
  std::optional<int> reduce_buckets{};
  // > 0: return as soon as the makespan is proven to exceed this; 0: never.
  std::chrono::nanoseconds stop_after{0};
};

// Shapes   result.lanes: [replica][lane]; busy and finish are those of operations with a unit
//          (forward, backward and its halves); makespan is the last finish of any operation.
// Ensures  every operation runs once; deterministic; integer arithmetic only. With stop_after:
//          result.makespan > stop_after exactly if the full one is; if result.stopped, makespan
//          is a lower bound of the full one, and lanes and events are empty.
// Stops    when, on some lane, the time that has passed (idle time included) and the remaining work
//          (reductions at the end and optimizer included) exceed stop_after, or a message
//          arrives later. A program that cannot finish may be stopped before that is known.
// Memory   per lane: activation bytes from a group's forward to its backward, of a split one to the
//          weight half (to the end of the forward if it has no backward); encoder
//          outputs on the LLM's first lane from receive (or forward, on the same lane) until the
//          last backward of the groups they serve (forward, for groups without backward).
//          A chunk's keys and values are among its activation bytes; if it has no backward
//          they stay, separately, until the forward of its sample's last chunk. Their
//          gradients, as many bytes again, exist from that chunk's backward, which computes them,
//          to the chunk's own (input half), which uses them. Later chunks read the
//          tensors of earlier ones: no copies.
//          Restored activations of recomputed layers exist while their backward runs: the largest
//          layer's, or, of a split one, all of it until the weight half has run.
//          peak_bytes is the largest of memory_over_time().
// Events   by replica, lane and operation. A receive has its send's times; a wait is the time for
//          which the lane was idle before an operation (a blocking send too); clip_norm has its
//          wait only; buckets are sends of their lane's reduce_gradients, by start.
// Throws   InvalidInput when the program cannot finish, naming the operations that wait for each
//          other; for a unit that is not in the program or whose stage is on another lane; for a
//          chunk that is no range within its sample's tokens; for operations that have no cost yet
//          (sync_tied); for a network that lacks lanes and options below zero.
// Cost     O(operations + parts + items × stages); kNode: log(messages) more for each message
//          between nodes.
Timeline simulate(const Program& program,
                  const StepCosts& costs,
                  const SimulateOptions& options = {});
// The same with a given graph: step_graph() of the program and costs.
Timeline simulate(const Program& program,
                  const StepGraph& graph,
                  const StepCosts& costs,
                  const SimulateOptions& options = {});

// Activation bytes of one lane while each operation of its list runs, in list order: bytes that an
// operation frees are still counted.
// Cost     O(operations of the lane + groups), plus that of step_graph() if it is not given.
std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepCosts& costs,
                                           int replica,
                                           int lane);
std::vector<std::int64_t> memory_over_time(const Program& program,
                                           const StepGraph& graph,
                                           int replica,
                                           int lane);

// From `time` on a lane holds `bytes`.
struct MemoryStep {
  std::chrono::nanoseconds time{0};
  std::int64_t bytes = 0;
  bool operator==(const MemoryStep&) const = default;
};

// Activation bytes of every lane over a timeline's times: what memory_over_time() counts, from the
// start of the operation that adds it (a receive: the finish of the compute operation before it) to
// the finish of the one that frees it.
//
// Shapes    result: [replica][lane][step], times rising, several steps of one time in the order of
//           the list; the largest is memory_over_time()'s. A lane on which the timeline lacks a
//           compute operation (measured elsewhere) has no steps.
// Requires  `timeline` has events of `program`, predicted or measured.
// Cost      O(operations + events + parts + items × stages).
std::vector<std::vector<std::vector<MemoryStep>>> memory_timeline(const Program& program,
                                                                  const StepCosts& costs,
                                                                  const Timeline& timeline);

}  // namespace entrain
