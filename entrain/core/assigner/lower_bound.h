// A step time that no assignment can beat under a given plan.
#pragma once

#include <chrono>
#include <string_view>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Valid for every assignment of this batch (any numbers of slots, segments placed singly, whole
// samples in the LLM or, where the plan's limits allow chunks, any token ranges of them, of which
// then no more than a launch counts along heads, tails and chains) and every order of the
// operations on the plan's lanes. Where the schedule may split backward into halves, a lane's last
// operation may be a weight half, which nothing follows: the bound then is the larger of two, one
// over all work without tails, one over forwards and input gradients with theirs (backward paths
// then consist of input gradients, each followed by its weight half).
//
// Lane bound   for a lane and any set T of samples: T's work on the lane is distributed to R
//              replicas, so some replica holds at least R(T): the sum over R, the largest sample,
//              or k + 1 of the k·R + 1 largest. The first operation of T on that replica's lane
//              belongs to a sample of T, whose forward path there took at least its *head*: forward
//              through the earlier stages. Its last operation likewise leaves a *tail*: backward
//              through the following stages, for a frozen encoder's lane the rest of forward and
//              the LLM's backward. Hence head + R(T) + tail, with the least head and tail of T. T
//              runs over the samples with the largest work on the lane, so that an oversized sample
//              counts with its own path. An encoder's lane is also bounded by its forwards only,
//              the last of which all of the LLM's work on its sample follows.
// Chain bound  a sample's longest forward and backward path through all stages.
// Passing bound  while a long sample goes that way, every other sample of its replica delays it by
//              its shortest operation there (passing_bound.h). The way begins at the LLM's or an
//              encoder's first stage and ends at the first that certainly takes backward; transfers
//              do not count. Not where the plan's limits allow chunks.
//
// To both are added the gradients' reduction (on the lane, or on any lane on a backward path, of
// which each waits for its own last backward, whichever is latest; none if reductions overlap
// compute) and the slowest optimizer step.
// Launch constants count along heads, tails and chains, and not in R(T); transfers on the
// forward path.
//
// Requires  costs of this plan.
// Cost      O(units × (stages + lanes) + modules × lanes × samples log samples) with one stage of a
//           module a lane.
std::chrono::nanoseconds step_lower_bound(const Plan& plan,
                                          const StepCosts& costs,
                                          std::string_view schedule);

}  // namespace entrain
