// What a search for a cluster's plan is asked, and what it finds out of one configuration.
//
// Read first: PlanSearchRequest and PlanCandidate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "entrain/core/planner/layer_figures.h"
#include "entrain/core/planner/memory_check.h"
#include "entrain/core/planner/plan_space.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

enum class RecomputeRule : std::uint8_t {
  kNever,
  kAuto,  // as little as fits, where memory is short: PlanScorer::score()
  kFull,  // every layer of every plan
};

struct PlanSearchRequest {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;  // its degrees are those that are searched
  const ClusterSpec* cluster = nullptr;
  Batches batches;  // drawn global batches of equal size, >= 1
  // That the best plan has to fit in memory too; may be empty.
  FurtherBatches further;
  std::string policy = "entrain";
  std::string schedule = "1f1b";
  PlanLimits limits;  // of the plan; bytes come from the cluster's memory
  // What devices hold beside activations. Its shard_optimizer is the plans' too, with the
  // exchanges.
  StateOptions state;
  std::int64_t reserve_bytes = 0;  // of a device, kept free, >= 0
  RecomputeRule recompute = RecomputeRule::kAuto;
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;    // that batches[0] belongs to
  SpaceOptions space;             // global_batch is taken from the batches
  int score_evaluations = 50;     // limits.evaluations while plans are scored, >= 0
  int most_simulations = -1;      // simulated steps; -1: default_budget(), 0: no limit
  int patience = 1;               // times the default budget, >= 1
  int runners_up = 1;             // plans behind the best whose rank is proven too, >= 0
  int most_candidates = 100'000;  // configurations held at a time, >= 1
  // Called before each simulated step with the number so far; may be empty.
  std::function<void(int simulated)> progress;
};

enum class CandidateState : std::uint8_t {
  kSimulated,  // on every batch
  kStopped,    // proven slower than the best ones after some batches
  kSetAside,   // behind the best ones by more than kFarBehind after some batches; nothing is proven
  kNoFit,      // the policy, or a lane's state, found no room in memory on a batch, or on a further
               // one, with what may be recomputed
};

// Share of the time on the same batches: of the best plan's, or, where the space is small for the
// budget, of the last of those whose rank is to be proven.
inline constexpr double kFarBehind = 0.01;

// A configuration that was cut and simulated.
struct PlanCandidate {
  PlanShape config;
  Plan plan;  // with its certificate where it is the best
  CandidateState state = CandidateState::kSimulated;
  std::vector<std::int64_t> steps;  // [batch] simulated step times in nanoseconds, as far as run
  std::int64_t mean_ns = 0;   // of steps; kStopped, kSetAside: a mean that the plan cannot beat
  std::int64_t bound_ns = 0;  // mean that no cut or assignment of this configuration beats
  std::string reason;         // kNoFit: why
  std::int64_t further_step = -1;  // kNoFit: the further batch that it does not fit, if that is why
  std::int64_t missing_bytes = 0;  // there, on the lane that lacks most
  bool recompute_tried = false;    // its configuration was tried with recomputation too
  std::vector<std::int64_t> lane_work_ns;       // [lane] mean of a step, launches left out
  std::vector<std::int64_t> lane_recompute_ns;  // [lane] of that, forwards that run again; or empty
  std::vector<std::int64_t> lane_peak_bytes;    // [lane] activations per device
  std::vector<std::int64_t> lane_state_bytes;  // [lane] parameters, gradients, optimizer per device
};

}  // namespace entrain
