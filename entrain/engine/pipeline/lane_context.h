// What a lane of one rank works with, step after step.
#pragma once

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/gradients.h"
#include "entrain/engine/pipeline/lane_stages.h"
#include "entrain/engine/pipeline/lane_weights.h"
#include "entrain/engine/pipeline/overlapped_reduction.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/pipeline/tied_table.h"

namespace entrain::engine {

struct LaneContext {
  const ModelSpec& model;
  const Plan& plan;
  int replica = 0;
  int lane = 0;
  Comm& comm;
  const ExecutorOptions& options;
  const LaneStages& stages;
  LaneGradients& gradients;
  LaneWeights& weights;
  const RankPlaces& places;
  const TensorGroup& group;  // the ranks that share the lane
  TiedTable tied{};
  OverlappedReduction* overlap = nullptr;  // null: gradients are reduced at the step's end
};

}  // namespace entrain::engine
