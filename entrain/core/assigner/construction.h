// A whole step by construction: replicas dealt, slots by rule, work moved from slow replicas to
// fast ones.
#pragma once

#include <vector>

#include "entrain/core/assigner/evaluators.h"
#include "entrain/core/assigner/search.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"

namespace entrain {

struct ConstructionOptions {
  // Evaluations of the evaluators in all when the first step is made; a few more than a dozen a
  // replica are always spent.
  int budget = 0;
  // Evaluations after that, which change the rules of the slowest replicas a little.
  int tuning = 0;
  // [replica] samples, instead of those of deal_to_replicas(); null: those.
  const std::vector<std::vector<int>>* dealt = nullptr;
  // Its samples of replicas are taken, and its slots where no rule is better; null: none.
  const Evaluated* start = nullptr;
  // Of several replicas. Ends with GaveUp where the last replica, which has the lightest heaviest
  // sample, takes 10 % more than this with its first slots, or all of them 2 % more in the mean.
  std::int64_t give_up_ns = std::numeric_limits<std::int64_t>::max();
};

// One step; where that leaves the limits on its way and ends over them, a second one as well, from
// the same rules, in which no replica that keeps them is led over them: the way of the first is
// open, and its end may need mending.
//
// Ensures  with a start, every replica is at first at least as good as there, and keeps the limits
//          where it does there; work then moves where the slower of two replicas gets faster.
std::vector<Evaluated> construct(const AssignRequest& request,
                                 const BatchLoads& loads,
                                 StepEvaluators& evaluators,
                                 const ConstructionOptions& options);

// Loads of encoders only, except for samples without any: for the ablation of the joint start.
BatchLoads encoder_only(const BatchLoads& loads, const StepCosts& costs);

}  // namespace entrain
