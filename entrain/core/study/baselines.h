// Plans that other planners would make of a study's data, to be simulated beside the found one.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/planner/plan_search.h"
#include "entrain/core/study/study.h"

namespace entrain {

// "one-sample" (DistTrain: the ratio of one sample), "four-samples" (DIP), "b-min" (the Entrain
// paper: rounded shares of whole batches and a closed formula), "dflop" and "orchmllm"
// (peer_plans.h), "megatron-even" (by numbers of layers).
std::vector<std::string> baseline_planner_names();

struct BaselineRequest {
  std::string planner;
  PlanSearchRequest search;  // b-min, dflop, orchmllm: all of it, with a cluster; others: policy,
                             // schedule and limits
  int lanes = 0;             // per replica, >= 1; those three choose their own
  int replicas = 1;          // >= 1; likewise
  int num_slots = 1;         // >= 1; likewise
  int tensor_parallel = 1;   // of every module, >= 1; likewise
};

// Samples are the first of the study's batch 0; b-min, dflop and orchmllm take the batches of
// request.search.
//
// Ensures   a valid plan without a certificate; on a cluster, limited to what its devices have left
//           for activations.
// Throws    InvalidInput for an unknown planner, those without a cluster, a study of given costs,
//           and as single_sample_plan(), proportional_plan() and dflop_plan() do; NothingFits where
//           the cluster's devices cannot hold the plan.
Plan baseline_plan(const Study& study, const BaselineRequest& request);

}  // namespace entrain
