// The best construction for one replica: number of slots, shape, order and spread, by simulated
// time.
#pragma once

#include <vector>

#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/greedy.h"
#include "entrain/core/base/random.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// Numbers of slots worth a try for a replica of these samples: from a few, which suits oversized
// samples, up to sixteen times the lanes; the plan's own; and the fastest by the classical formula
// for 1F1B, which knows launches, where that is fewer than half the lanes. By rising time of that
// formula: on many lanes the budget may end after a few tries.
//
// Requires  a sample. Ensures  none is above the number of samples, none there twice.
std::vector<int> slot_counts(const AssignRequest& request,
                             const BatchLoads& loads,
                             const std::vector<int>& samples);

// The times of one replica under a rule.
struct RuleResult {
  SlotRule rule;
  ReplicaTimes times;
  int extra = 0;  // evaluations beyond the budget
};

struct RuleSearch {
  int budget = 0;  // of StepEvaluator::evaluations(), where it ends
  // Whether slots within the bytes are tried where they cost the others a twentieth of the time.
  bool beyond = true;
  // Tried first, and then numbers of slots outwards from its own as long as they win, or all where
  // segments are spread; null: slot_counts(), one after the other, or without a budget the plan's
  // number alone, since the fastest by the formula may be many slots that take long to simulate.
  const SlotRule* start = nullptr;
};

// Tries a few dozen rules, one choice after the other (number of slots, shape, order by ratio,
// text-only slots, spread segments), until the budget ends; the first one always, and slots within
// the bytes and one sample a slot whatever is spent where none keeps the limits. If the schedule's
// order is searched rather than fixed, its rule is chosen too.
//
// Ensures  the placement holds the replica's samples by the result's rule. Rules that keep the byte
//          limits come before those that do not. Not worse than the rule that it starts with.
RuleResult choose_slot_rule(const AssignRequest& request,
                            const BatchLoads& loads,
                            StepEvaluator& evaluator,
                            int replica,
                            const RuleSearch& search,
                            Placement& placement);

// The rule with one thing changed at random, which the request's options allow to choose: a few
// slots more or less, another slope, or a slot for text-only samples more or less. The rule itself
// where the draw changes nothing.
//
// Requires  a valid rule for `num_samples`. Ensures  the result is one, too.
SlotRule neighbour_of(
    const SlotRule& rule, const EntrainOptions& options, int num_samples, bool has_text, Rng& rng);

// Places a replica's samples by a rule, as choose_slot_rule() does for the request's options.
void place_by_rule(const AssignRequest& request,
                   const BatchLoads& loads,
                   int replica,
                   const SlotRule& rule,
                   Placement& placement);

}  // namespace entrain
