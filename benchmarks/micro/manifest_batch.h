// Global batches under a plan, for benchmarks of the assigner: one of a real manifest.
#pragma once

#include <string>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/planner/lane_split.h"

#include "tests/oracle/shards.h"

namespace entrain {

struct PlannedBatch {
  Plan plan;
  StepCosts costs;

  // Valid while the batch lives.
  [[nodiscard]] AssignRequest request() const {
    AssignRequest request;
    request.plan = &plan;
    request.costs = &costs;
    return request;
  }
};

// 512 samples under Qwen2.5-VL's vision encoder and Llama-3 1B on A40s (analytic): 4 replicas of 8
// lanes, split as simulation with `lpt-2d` finds best.
//
// Requires  oracle::shared_folder() is not empty.
inline PlannedBatch manifest_batch(const std::string& name) {
  const ModelSpec model =
      read_model(oracle::source_root() / "configs/models/qwen2.5-vl-llama-1b.toml");
  const Profile profile = analytic_profile(model, device_model("a40"));
  const Index index = read_index(oracle::shared_folder() / "data/manifests" / (name + ".csv"));
  LaneSplitRequest split;
  split.model = &model;
  split.profile = &profile;
  split.batches = {batch_work(model, draw_with_replacement(index.samples, 512, 7, 0))};
  split.lanes = 8;
  split.replicas = 4;
  split.num_slots = 32;
  split.policy = "lpt-2d";
  PlannedBatch result;
  result.plan = plan_lane_split(split).best();
  result.costs = step_costs(model, result.plan, profile, split.batches.front());
  return result;
}

}  // namespace entrain
