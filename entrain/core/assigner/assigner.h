// Microbatch assignment: global batch → replicas → slots → deferral.
//
// Read first: assign(). A new policy is one file, one test and one line in assigner.cc's registry.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// What the `entrain` policy may use, so that its gain can be split into parts. Other policies
// ignore it.
struct EntrainOptions {
  bool joint = true;            // both costs from the start; false: slots by encoder work alone
  bool replica_balance = true;  // samples to replicas by work; false: in drawn order, for good
  bool slot_order = true;       // the shape's order of slots; false: a random one
  bool search = true;           // local search behind the construction
  bool shape = true;            // slots of unequal target size, small at both ends; false: equal
  bool choose_slots = true;     // number of slots by simulated time; false: the plan's num_slots
  bool defer = true;            // encoder work in earlier slots than its sample's LLM work
  bool chunks = true;           // LLM work in token ranges, where the plan's limits allow them
  bool split_segments = true;   // a sample's segments in different slots (needs defer)
};

// All of it but the named parts: "joint", "replicas", "shape", "order", "slots", "deferral",
// "segments", "chunks", "search" (in the order of EntrainOptions' comments).
// Throws  InvalidInput for another name (with a suggestion), after `where` ("plan.without").
EntrainOptions entrain_options_without(const std::vector<std::string>& parts,
                                       const std::string& where);

// What the `entrain` policy makes small. Other policies ignore it.
enum class Objective : std::uint8_t {
  kStepTime,  // the simulated step time
  kBalance,   // the variation of forward time between slots, in every module, with exactly the
              // plan's num_slots; see balance_objective.h
};

// Where the policy `entrain` finds nothing within memory with the plan's evaluations, it tries so
// many.
inline constexpr int kFewEvaluations = 50;

// NothingFits of the policy `entrain`.
class OverLimits : public NothingFits {
 public:
  OverLimits(const std::string& message, const MemoryExcess& excess)
      : NothingFits(message), excess_(excess) {}
  // Of the assignment that missed the limits by least; no bytes where the search alone knows.
  [[nodiscard]] const MemoryExcess& excess() const { return excess_; }

 private:
  MemoryExcess excess_;
};

struct AssignRequest {
  const Plan* plan = nullptr;        // replicas, default num_slots, lanes, limits, schedule
  const StepCosts* costs = nullptr;  // of this step's global batch
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  EntrainOptions options{};
  Objective objective = Objective::kStepTime;
  // false: the result's stats hold assign_ms alone, which saves a program and a replay.
  bool stats = true;
};

// "sequential", "random", "packed", "encoder-lpt", "llm-lpt", "lpt-2d", "disttrain", "dflop",
// "orchmllm", "entrain-paper", "entrain".
std::vector<std::string> policy_names();

// Ensures   the result passes validate_assignment(); equal requests give equal results on every
//           machine; stats are filled: balance per module, the simulated step time under
//           plan.schedule, and the bound of step_lower_bound(), unless request.stats is false.
// entrain   never slower under plan.schedule than `sequential` and `lpt-2d`, where their result
//           keeps limits.bytes_of(lane); its own result keeps it. (Under a found order with
//           limits.evaluations = 0 the comparison is by one rule, not by the best.)
//           limits.evaluations bounds the simulated replicas, but for what a valid result, two
//           dozen constructions a replica and that comparison need. It is a heuristic: stats.gap
//           says how far from the bound it stopped. It finds an assignment within memory with any
//           number of evaluations above 0 where it does with kFewEvaluations, or where
//           `sequential`, `lpt-2d` or one sample a slot in drawn order keep the limits (all parts
//           of EntrainOptions allowed, objective kStepTime).
// Throws    InvalidInput for an unknown policy (with a suggestion), fewer samples than replicas,
//           costs of other modules than the plan's. OverLimits, for `entrain`, when no assignment
//           that it tried keeps the plan's memory limits, naming lane, slot and bytes of the one
//           that missed them by least. Other policies do not look at bytes.
StepAssignment assign(std::string_view policy, const AssignRequest& request);

// Proves an assignment, whatever made it:
// - as many replicas as the plan, num_slots >= 1 and num_slots lists in each of its modules;
// - every segment exactly once in its encoder, every sample exactly once in the LLM, all in one
//   replica; no sample in an encoder that it brings no segment to;
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
