// Tiny random instances: model, plan, batch, costs and an assignment wilder than any policy's.
//
// Read first: make_random_case(). The engine's gradient tests use random_assignment() with a real
// model and batch.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain::oracle {

enum class FrozenPattern : std::uint8_t {
  kNone,           // everything takes gradients
  kEncoders,       // encoders with their projectors are frozen
  kLlm,            // the LLM is frozen
  kOnlyProjector,  // only the projectors take gradients
  kEncoderBodies,  // encoders are frozen, projectors and the LLM are not
  kGiven,          // what the model says already
};

// Sets the freezing flags of every module.
void freeze(FrozenPattern pattern, ModelSpec& model);

enum class LaneLayout : std::uint8_t {
  kLanePerStage,
  kSingleLane,  // one lane hosts every stage
  kMixed,       // stages dealt to lanes at random
};

// An empty optional is drawn anew for every case, from the range named.
struct RandomCaseOptions {
  std::optional<int> encoders{};        // 0-2
  std::optional<int> encoder_stages{};  // 1-3, each encoder for itself
  std::optional<int> llm_stages{};      // 1-3 (at most 5 when given)
  std::optional<int> replicas{};        // 1-2
  std::optional<FrozenPattern> frozen{};
  std::optional<LaneLayout> layout{};
  std::optional<bool> launch_costs{};  // whether launch constants are above zero
  int min_slots = 1;                   // per replica; every replica draws its own
  int max_slots = 6;
  int max_samples = 12;    // of the global batch, at least one per replica
  bool chunks = false;     // allow chunks and cut about half of the samples' LLM work
  bool recompute = false;  // about half of the stages bring something back in backward
  bool alike = false;      // stages between the ends cost what the one before costs, where they may
};

struct RandomCase {
  ModelSpec model;
  Plan plan;
  StepCosts costs;  // costs.work holds the samples
  StepAssignment assignment;
};

// Of all replicas, rising.
inline std::vector<int> replicas_of(const Plan& plan) {
  std::vector<int> replicas(static_cast<std::size_t>(plan.replicas));
  std::iota(replicas.begin(), replicas.end(), 0);
  return replicas;
}

// Ensures  the model, the plan and the assignment are valid; times, bytes and link are small
//          random integers that honour the freezing; equal generators give equal cases.
RandomCase make_random_case(Rng& rng, const RandomCaseOptions& options = {});

// A random valid assignment of the batch behind `costs`: samples dealt to replicas, deferral over
// any distance that plan.limits allows, a sample's segments spread over encoder slots, empty slots,
// another num_slots in [min_slots, max_slots] for every replica, shuffled packing orders; where
// plan.limits.chunks allows it, about half of the samples that can be are cut into 2 to 4 chunks.
//
// Requires  costs.num_samples >= plan.replicas; 1 <= min_slots <= max_slots.
StepAssignment random_assignment(
    Rng& rng, const StepCosts& costs, const Plan& plan, int min_slots, int max_slots);

// The instance in a few lines, for the message of a failing test.
std::string describe(const RandomCase& random_case);

}  // namespace entrain::oracle
