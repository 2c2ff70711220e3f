// Microbatch assignment: global batch → replicas → slots → deferral.
//
// Read first: assign(). A new policy is one file in core/baselines, one test and one line in
// assigner.cc's registry.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/baselines/request.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// "sequential", "random", "packed", "encoder-lpt", "llm-lpt", "lpt-2d", "disttrain", "dflop",
// "orchmllm", "entrain-paper", "entrain".
std::vector<std::string> policy_names();

// Ensures   the result passes validate_assignment(); equal requests give equal results on every
//           machine; its stats hold only assign_ms (simulate_step() fills the others).
// entrain   never slower under plan.schedule than `sequential`, `lpt-2d` and, with more than
//           kFewEvaluations, `dflop`, if their result keeps limits.bytes_of(lane), nor than itself
//           with fewer evaluations above 0; its own result keeps the limits. (With
//           limits.evaluations = 0 candidates are compared by a few constructions alone.)
//           limits.evaluations bounds the simulated replicas, except two dozen constructions per
//           replica, comparisons, and what kFewEvaluations allow; replicas whose orders are fixed
//           and known do not count. The search also ends once 800 operations for each evaluation
//           are simulated; operations of replicas that do not count are a twentieth each. It is a
//           heuristic: stats.gap is its distance from the bound. It finds an assignment within
//           memory with any number of evaluations above 0 if it does with kFewEvaluations, or if
//           `sequential`, `lpt-2d` or one sample a slot, large ones far from each other, keep the
//           limits (all parts of EntrainOptions allowed, objective kStepTime).
//           Limits: under those that exclude nothing it tries, the result is that of no limits.
//           Otherwise the step is not monotone in them: a tighter limit may be the faster one, by
//           chance of the search (how often and by how much: benchmarks/results/
//           pressure_202611.md). A promise would cost a looser limit the searches of all tighter
//           ones, since each of those may find something faster.
//           Reductions that overlap compute: the result is no slower in simulation than `lpt-2d`
//           and `dflop` with the plan's number of slots, where more than kFewEvaluations are
//           allowed and all parts of EntrainOptions.
// Throws    InvalidInput for an unknown policy (with a suggestion), fewer samples than replicas,
//           costs of other modules than the plan's. OverLimits, for `entrain`, when no assignment
//           that it tried keeps the plan's memory limits, naming lane, slot and bytes of the one
//           that missed them by least. Other policies ignore bytes. GaveUp, for `entrain`, where
//           the request has a give_up_ns.
StepAssignment assign(std::string_view policy, const AssignRequest& request);

// Proves an assignment, whatever made it:
// - as many replicas as the plan, num_slots >= 1 and num_slots lists in each of its modules;
// - every segment exactly once in its encoder, every sample exactly once in the LLM, all in one
//   replica; no sample in an encoder in which it has no segment;
// - no LLM slot before a segment's encoder slot, none further after it than limits.max_deferral;
// - chunks only where limits.chunks allows them, consecutive from the first token to the last, in
//   slots of rising index. The deferral of a segment then counts from the chunk that holds its
//   first feature, taking features to stand at the sequence's front (a later place only helps).
//
// Throws  InvalidInput naming replica, module, slot and sample of the first violation.
void validate_assignment(const StepAssignment& assignment,
                         const Plan& plan,
                         const StepCosts& costs);

}  // namespace entrain
