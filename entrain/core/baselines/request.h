// The request to a policy, and how a policy refuses.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Parts that the `entrain` policy may use, so that its gain can be split into parts. Other policies
// ignore it.
struct EntrainOptions {
  bool joint = true;            // both costs from the start; false: slots by encoder work only
  bool replica_balance = true;  // samples to replicas by work; false: in drawn order, fixed
  bool slot_order = true;       // the shape's order of slots; false: a random one
  bool search = true;           // local search after the construction
  bool shape = true;            // slots of unequal target size, small at both ends; false: equal
  bool choose_slots = true;     // number of slots by simulated time; false: the plan's num_slots
  bool defer = true;            // encoder work in earlier slots than its sample's LLM work
  bool chunks = true;           // LLM work in token ranges, if the plan's limits allow them
  bool split_segments = true;   // a sample's segments in different slots (needs defer)
  bool rivals = true;           // others' assignments as starts (needs joint, replica_balance)
  bool tuning = true;           // small changes of the constructions' rules
  bool slot_bytes = true;       // constructions that keep byte limits (needs shape, choose_slots)
};

// All parts except the named ones: "joint", "replicas", "shape", "order", "slots", "deferral",
// "segments", "chunks", "search", "rivals", "tuning", "bytes".
// Throws  InvalidInput for another name (with a suggestion), after `where` ("plan.without").
EntrainOptions entrain_options_without(const std::vector<std::string>& parts,
                                       const std::string& where);

// The objective of the `entrain` policy. Other policies ignore it.
enum class Objective : std::uint8_t {
  kStepTime,  // the simulated step time
  kBalance,   // the variation of forward time between slots, in every module, with exactly the
              // plan's num_slots; see balance_objective.h
};

// The number of evaluations that the policy `entrain` falls back to if it finds nothing within
// memory with the plan's.
inline constexpr int kFewEvaluations = 50;

// NothingFits of the policy `entrain`.
class OverLimits : public NothingFits {
 public:
  OverLimits(const std::string& message, const MemoryExcess& excess)
      : NothingFits(message), excess_(excess) {}
  // Of the assignment that missed the limits by least; no bytes if only the search knows.
  [[nodiscard]] const MemoryExcess& excess() const { return excess_; }

 private:
  MemoryExcess excess_;
};

// The policy `entrain` gave up: AssignRequest::give_up_ns.
class GaveUp : public std::runtime_error {
 public:
  explicit GaveUp(std::int64_t expected_ns)
      : std::runtime_error("the step is not worth its assignment"), expected_ns_(expected_ns) {}
  // What the step hardly falls below.
  [[nodiscard]] std::int64_t expected_ns() const { return expected_ns_; }

 private:
  std::int64_t expected_ns_;
};

struct AssignRequest {
  const Plan* plan = nullptr;        // replicas, default num_slots, lanes, limits, schedule
  const StepCosts* costs = nullptr;  // of this step's global batch
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  EntrainOptions options{};
  Objective objective = Objective::kStepTime;
  int threads = 1;  // of the policy `entrain`, which assigns the same with any number
  // The policy `entrain` throws GaveUp where its first slots show that the step hardly ends by
  // then: for searches that have no use for a slower one.
  std::int64_t give_up_ns = std::numeric_limits<std::int64_t>::max();
};

}  // namespace entrain
