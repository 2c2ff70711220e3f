// The request to a search for a cluster's plan, its result, and that for one configuration.
//
// Read first: PlanSearchRequest, PlanCandidate, PlanSearchResult.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "entrain/core/planner/layer_figures.h"
#include "entrain/core/planner/memory_check.h"
#include "entrain/core/planner/plan_bound.h"
#include "entrain/core/planner/plan_space.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// Nanoseconds that stop no simulation.
inline constexpr std::int64_t kNoStop = std::numeric_limits<std::int64_t>::max();

enum class RecomputeRule : std::uint8_t {
  kNever,
  kAuto,  // the fewest that fit, if memory is short: PlanScorer::score()
  kFull,  // every layer of every plan
};

struct PlanSearchRequest {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;  // the search uses its degrees
  const ClusterSpec* cluster = nullptr;
  Batches batches;  // drawn global batches of equal size, >= 1
  // Batches whose memory the best plan must also fit; may be empty.
  FurtherBatches further;
  std::string policy = "entrain";
  std::string schedule = "1f1b";
  PlanLimits limits;  // of the plan; bytes come from the cluster's memory
  // What devices hold beside activations. Its shard_optimizer is the plans' too, with the
  // exchanges.
  StateOptions state;
  bool any_optimizer = false;      // plans of several replicas with and without shard_optimizer
  std::int64_t reserve_bytes = 0;  // of a device, kept free, >= 0
  RecomputeRule recompute = RecomputeRule::kAuto;
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;    // step of batches[0]
  SpaceOptions space;             // global_batch is taken from the batches
  int score_evaluations = 50;     // limits.evaluations while scoring, >= 0
  int most_simulations = -1;      // simulated steps of each part; -1: default_budget(), 0: none
  int threads = 1;                // >= 1; results do not depend on it
  int patience = 1;               // times the default budget, >= 1
  int runners_up = 1;             // plans after the best whose rank is proven too, >= 0
  int most_candidates = 100'000;  // configurations held at a time, >= 1
  // Called before each simulated step with the number so far; may be empty.
  std::function<void(int simulated)> progress;
};

enum class CandidateState : std::uint8_t {
  kSimulated,  // on every batch
  kStopped,    // proven slower than the best ones after some batches
  kSetAside,   // slower than the best ones by more than kFarBehind after some batches, or expected
               // to be; nothing is proven
  kNoFit,  // does not fit in memory on a batch, by the policy or a lane's state, or on a further
           // one, even with allowed recomputation
};

// Fraction of the time on the same batches: of the best plan's, or, if the space is small for the
// budget, of the last of those whose rank is to be proven.
inline constexpr double kFarBehind = 0.01;

// A configuration that was cut into stages and simulated.
struct PlanCandidate {
  PlanShape config;
  Plan plan;  // with its certificate if it is the best
  CandidateState state = CandidateState::kSimulated;
  std::vector<std::int64_t> steps;  // [batch] simulated step times in nanoseconds, as far as run
  bool gave_up = false;  // kSetAside: the last of steps was given up, and may take longer than that
  std::int64_t mean_ns = 0;   // of steps; kStopped, kSetAside: a lower bound of the mean
  std::int64_t bound_ns = 0;  // lower bound of the mean over all cuts and assignments
  std::string reason;         // kNoFit: why
  std::int64_t further_step =
      -1;  // kNoFit: the further batch that it does not fit, if that is the reason
  std::int64_t missing_bytes = 0;          // there, on the lane that lacks most
  bool recompute_tried = false;            // its configuration was tried with recomputation too
  std::vector<std::int64_t> lane_work_ns;  // [lane] mean of a step, without launches
  std::vector<std::int64_t> lane_recompute_ns;  // [lane] part of it in repeated forwards; or empty
  std::vector<std::int64_t> lane_peak_bytes;    // [lane] activations per device
  std::vector<std::int64_t> lane_state_bytes;  // [lane] parameters, gradients, optimizer per device
};

// The budget of each part of a search without most_simulations: this many simulated steps, and
// fewer if they take long, counted in units on stages (plan_units.h): of batches of up to 512
// samples, and of larger ones as many times more as their root, without a fraction.
inline constexpr int kMostSimulations = 28;
inline constexpr int kLeastSimulations = 8;
inline constexpr std::int64_t kMostUnitStages = 700'000;
// What is near a plan that has just become the best may take so much of both, in percent.
inline constexpr int kWalkPercent = 150;

// Steps of a search without most_simulations, if none takes long.
inline int default_budget(int patience) {
  return patience * kMostSimulations;
}

// Configurations excluded by a bound, without simulation.
struct CutSummary {
  BoundCause cause = BoundCause::kWork;
  int module = -1;              // kWork, kMemory: excluded by this module, in `count` of its shapes
  std::int64_t count = 0;       // shapes (replicas, degrees, stages) of a module, or configurations
  std::int64_t nearest_ns = 0;  // the least mean bound among them; 0 for kMemory
  std::string nearest;          // its description; for kMemory the one that misses least bytes
};

struct PlanSearchResult {
  std::vector<PlanCandidate> plans;    // simulated ones by mean; of equals the first in the space
  std::vector<PlanCandidate> stopped;  // by their lower bound of the mean
  // Set aside when the budget ended, by their time relative to the best plan's on the same batches.
  std::vector<PlanCandidate> set_aside;
  std::vector<PlanCandidate> no_fit;
  std::vector<CutSummary> cuts;
  std::int64_t shapes = 0;          // replicas × degrees × stages, over all modules
  std::int64_t configurations = 0;  // listed: no single module excluded them
  std::int64_t lower_bound_ns = 0;  // lower bound of the mean step time over all plans of the space
  int simulated_steps = 0;
  // Whether everything not simulated is proven no faster than the plans listed first
  // (the best and request.runners_up after it).
  bool complete = true;
  std::int64_t left = 0;           // configurations left undecided by the budget
  std::int64_t left_bound_ns = 0;  // the least mean bound among them
  // The gain of re-planning for every single one of the batches at no cost of switching,
  // among the plans that were simulated: mean of the best plan / mean of each batch's best - 1.
  double dynamic_regret = 0;
  // Number of further batches that the best plan fits; plans after it were checked on a few of
  // them at most.
  int further_batches = 0;
  // Why nothing fits: which module on which lane lacks how many bytes, and what would do.
  std::string reason;

  [[nodiscard]] bool fits() const { return !plans.empty(); }
  // Requires  fits().
  [[nodiscard]] const PlanCandidate& best() const { return plans.front(); }
};

}  // namespace entrain
