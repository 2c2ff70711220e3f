// Plans of other planners from few samples or none: DistTrain's from one, DIP's from four, and an
// even cut by layers only.
//
// Read first: single_sample_plans(). One sample represents a batch badly, so a study of
// DistTrain reports the mean step time over several such plans, one per draw.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

struct SingleSampleRequest {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;
  int lanes = 1;             // per replica, >= 1
  int replicas = 1;          // >= 1
  int num_slots = 1;         // the plan's default, >= 1
  int tensor_parallel = 1;   // of every module, >= 1
  int context_parallel = 1;  // likewise
  std::string policy = "disttrain";
  std::string schedule = "1f1b";
  PlanLimits limits;
};

// Each module gets the lanes that its part of the sample's work (forward and backward
// without launch constants) needs, by share_lanes(); a module never gets more lanes than it has
// layers. Its layers are then cut so that this sample's slowest stage is fastest. An encoder
// without work for the sample gets one lane. A single lane hosts every module.
//
// Ensures   a valid plan, one stage per lane; no certificate.
// Throws    InvalidInput if lanes are between 1 and the number of modules, exceed the number of
//           layers, or replicas or num_slots are below 1; what step_costs() throws.
// Cost      O(layers² × lanes).
Plan single_sample_plan(const SingleSampleRequest& request, const SampleWork& sample);

// The same by the work of several samples together; DIP takes four.
// Requires  samples not empty.
Plan few_samples_plan(const SingleSampleRequest& request, std::span<const SampleWork> samples);

// A plan without data, as Megatron-LM cuts a model into equal numbers of layers:
// lanes by largest remainder of the modules' numbers of layers, each module's layers cut evenly.
// Throws    as single_sample_plan(), except for costs.
Plan even_layers_plan(const SingleSampleRequest& request);

struct CountedPlan {
  Plan plan;
  int count = 0;  // draws that give this plan
};

// The distinct plans of all draws, in the order of their first draw; the counts sum to
// draws.size(). Plans of one lane split may differ in their layer cuts.
std::vector<CountedPlan> single_sample_plans(const SingleSampleRequest& request,
                                             std::span<const SampleWork> draws);

}  // namespace entrain
