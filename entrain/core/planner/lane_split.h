// The best split of a few lanes among modules, found by simulating all of them.
//
// Read first: plan_lane_split(). For every way to give each module a number of lanes, and each of
// these a number of stages, the module's layers are cut where its slowest stage is fastest; the
// policy and the schedule that will run are then simulated on several drawn global batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/plan_space.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

struct LaneSplitRequest {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;              // may be null if costs_of is given
  std::vector<std::vector<SampleWork>> batches;  // [batch][sample]: drawn global batches, >= 1
  int lanes = 1;                                 // per replica, in [1, 8]
  int replicas = 1;                              // >= 1
  int num_slots = 8;        // the plan's default, >= 1; a policy may choose others
  int tensor_parallel = 1;  // of every module, >= 1
  std::string policy = "entrain";
  std::string schedule = "1f1b";
  int virtual_stages = 1;                          // of every module, >= 1, or kAutoVirtualStages
  SharedLanes shared_lanes = SharedLanes::kNever;  // with `dip` kOnly
  PlanLimits limits;
  std::uint64_t seed = 0;
  // Costs of batches[batch] under a plan; empty: step_costs() of model and profile.
  std::function<StepCosts(const Plan& plan, std::size_t batch)> costs_of;
  std::function<void(double share)> progress;  // of the splits, tried so far; may be empty
};

// One way to split, with its simulation.
struct LaneSplit {
  PlanShape shape;
  Plan plan;                        // with its certificate, where it fits
  std::string reason;               // why it does not fit, or is slower; empty otherwise
  bool slower = false;              // than another one with virtual stages, by its lower bound
  std::vector<std::int64_t> steps;  // [batch] simulated step time in nanoseconds
  std::int64_t mean_ns = 0;         // of `steps`
  std::int64_t bound_ns = 0;    // mean over batches of step_lower_bound(): no assignment is faster
  std::int64_t peak_bytes = 0;  // largest activation bytes of a lane over all batches
};

struct LaneSplitResult {
  std::vector<LaneSplit> splits;  // those that fit by mean_ns, then the others
  std::string reason;             // why nothing fits; empty if something does
  double margin = 0;              // mean_ns of the second / the best - 1; 0 with one that fits

  [[nodiscard]] bool fits() const { return !splits.empty() && splits.front().reason.empty(); }
  // Requires  fits().
  [[nodiscard]] const Plan& best() const { return splits.front().plan; }
  // The fastest that fits with virtual stages, or without; null where there is none.
  [[nodiscard]] const LaneSplit* best_of(bool virtual_stages) const;
};

// Tries every way to give each module at least one separate lane; with several
// encoders also those in which all encoders share their lanes; with one lane that lane hosts
// everything; with shared_lanes all lanes do too, or only they. Of equal mean times the split with
// fewer lanes for the first module comes first.
//
// Virtual stages: a number of them goes to every module of the splits with lanes of their own.
// kAutoVirtualStages tries splits without (unless the schedule is `interleaved`), then with 2, 3, …
// on the module that has most and each other module with any number up to that, as far as layers
// allow; from kMostVirtualStages on until one more brings nothing faster. More than that nobody has
// looked at.
//
// Ensures   result.splits holds one entry per split; an impossible split (more stages than
//           layers, too little memory) has its reason. Pure function of the request.
// Throws    InvalidInput for numbers out of range, no batch, a batch of fewer samples than
//           replicas, an unknown policy or schedule, more virtual stages than the layers of
//           any split allow, and as check_lane_contents().
// Cost      splits × batches × one assignment; 7 splits for two modules on 8 lanes.
LaneSplitResult plan_lane_split(const LaneSplitRequest& request);

// A text table: split, stages, step time, ratio to the best, bound, or the reason.
std::string to_string(const LaneSplitResult& result, const ModelSpec& model);

}  // namespace entrain
