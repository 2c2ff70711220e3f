// Tied embeddings if the LLM's first and last stage are on different lanes: the last lane keeps a
// copy of the table for its output head.
//
// Read first: TiedTable. The first lane owns the table: only its table is optimised, counted in the
// norm and written. The last lane receives it before a step and returns its gradient after the last
// backward. Under tensor parallelism every rank of the lanes does so with its shard of the
// vocabulary.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/pipeline/lane_stages.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

class TiedTable {
 public:
  // Does nothing if nothing is tied, one lane hosts both stages, or this lane hosts neither. A
  // copy has the table's `precision`; gradients of both are float32.
  TiedTable(const ModelSpec& model,
            const Plan& plan,
            const RankPlace& place,
            const LaneStages& stages,
            at::ScalarType precision = at::kFloat);

  // Sends the first lane's table to the last. Both call it, before a step's first forward.
  void share(Comm& comm);

  // The gradient that the copy has accumulated, which is in no lane's buffer: dropped, or
  // scaled. No effect on other lanes.
  void clear_gradient();
  void scale_gradient(double factor);

  // Adds the copy's gradient to the table's, in at least float32, and zeroes the copy's. Both call
  // it, after their last backward and before gradients are summed over replicas.
  void give_gradient(Comm& comm);

 private:
  at::Tensor table_;  // this lane's table; undefined if there is nothing to do
  bool copy_ = false;
  int owner_ = -1;          // rank
  std::vector<int> ranks_;  // of both lanes in this replica, rising
};

}  // namespace entrain::engine
