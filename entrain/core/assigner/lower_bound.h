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
// over all work without tails, one over forwards and input gradients with theirs (ways back are
// then made of input gradients, each followed by its weight half).
//
// Lane bound   for a lane and any set T of samples: T's work on the lane is dealt to R replicas, so
//              some replica holds at least R(T) of it: the sum over R, the largest sample, or k + 1
//              of the k·R + 1 largest. The first operation of T on that replica's lane belongs to a
//              sample of T, whose way there took at least its *head*: forward through the stages
//              before. Its last operation likewise leaves a *tail*: backward through the stages
//              that follow, for a frozen encoder's lane the rest of forward and the LLM's backward.
//              Hence head + R(T) + tail, with the least head and tail of T. T runs over the samples
//              with the largest work on the lane, so that a giant counts with its own way.
//              An encoder's lane is bounded by its forwards alone as well, the last of which all of
//              the LLM's work on its sample follows.
// Chain bound  a sample's longest way through all stages and back.
//
// To both come the gradients' reduction (on the lane, or on any lane that a way back passes, of
// which each waits for its own last backward, whichever is latest; none where reductions run beside
// compute) and the slowest optimizer step.
// Launch constants count along heads, tails and chains, and not in R(T); transfers on the way
// forward.
//
// Requires  costs of this plan.
// Cost      O(units × (stages + lanes) + lanes × samples log samples), lanes of one stage a module.
std::chrono::nanoseconds step_lower_bound(const Plan& plan,
                                          const StepCosts& costs,
                                          std::string_view schedule);

}  // namespace entrain
