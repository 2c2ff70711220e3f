// The slots of every sample and segment, as arrays that a search can change in place.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"

namespace entrain {

// A range of a cut sample's tokens, from the end of the previous one.
struct ChunkPlace {
  int slot = 0;
  std::int64_t token_end = 0;
  bool operator==(const ChunkPlace&) const = default;
};

struct Placement {
  std::vector<int> num_slots;                  // [replica]
  std::vector<std::vector<int>> samples;       // [replica] its samples, in packing order
  std::vector<int> llm_slot;                   // [sample]
  std::vector<std::vector<int>> encoder_slot;  // [encoder][unit]
  // [sample] chunks of its LLM work in slots of rising index, the last in llm_slot; empty: whole
  std::vector<std::vector<ChunkPlace>> chunks;
};

// Nothing placed: no samples in any replica, all slots 0.
Placement empty_placement(const StepCosts& costs, int replicas, int num_slots);

// Sets the LLM slot of a sample and the encoder slot of all its segments.
void place_sample(const StepCosts& costs, int sample, int slot, Placement& placement);

// The replica's samples, and their slots, as they are in `from`.
// Cost  O(units) of the replica.
void copy_replica(const StepCosts& costs, const Placement& from, int replica, Placement& to);

// `count` chunks of a sample in the slots from `first_slot` on, of nearly equal forward time on the
// LLM's first stage, each of at least one token.
//
// Requires  2 <= count <= the sample's LLM tokens.
// Cost      O(count × log tokens).
std::vector<ChunkPlace> equal_chunks(const StepCosts& costs, int sample, int first_slot, int count);

// Whole samples of every slot in packing order, segments in reading order.
ReplicaAssignment to_assignment(const StepCosts& costs, const Placement& placement, int replica);
StepAssignment to_assignment(const StepCosts& costs, const Placement& placement);

// Contiguous runs of `order`, whose lengths differ by at most one: run `part` of `parts` is
// [result[part], result[part + 1]).
std::vector<int> even_runs(int count, int parts);

// Places a replica's samples, in their order, in even runs in min(num_slots, samples) slots.
// Requires  the replica has a sample.
void place_in_even_runs(const StepCosts& costs, int replica, int num_slots, Placement& placement);

// Distributes `order` to the replicas in even runs, and each run to slots as above.
Placement deal_in_order(const StepCosts& costs,
                        const std::vector<int>& order,
                        int replicas,
                        int num_slots);

}  // namespace entrain
