// The lane and run of a rank, and its communicator to the other ranks.
#pragma once

#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/pipeline/lane_step.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

struct LaneContext {
  const ModelSpec& model;
  const Plan& plan;
  const ExecutorOptions& options;
  Comm& comm;
  const RankPlaces& places;
  RankPlace place;

  // The ranks with the same weights as this one, one per replica.
  [[nodiscard]] std::vector<int> across_replicas() const {
    return places.across_replicas(place.lane, place.tensor_rank);
  }
};

}  // namespace entrain::engine
