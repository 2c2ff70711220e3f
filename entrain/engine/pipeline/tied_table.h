// Tied embeddings where the LLM's first and last stage lie on different lanes: the last one holds a
// copy of the table, for its output head.
//
// Read first: TiedTable. The table is the first lane's: it alone is optimised, counted in the norm
// and written. The last lane gets it before a step and gives its gradient back after the last
// backward. Under tensor parallelism every rank of the lanes does so with its run of the
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
  // Does nothing where nothing is tied, one lane hosts both stages, or this lane hosts neither. A
  // copy becomes one in `precision`, which the table has already; gradients of both are float32.
  TiedTable() = default;
  TiedTable(const ModelSpec& model,
            const Plan& plan,
            const RankPlace& place,
            const LaneStages& stages,
            at::ScalarType precision = at::kFloat);

  // Brings the first lane's table to the last one. Both call it, before a step's first forward.
  void share(Comm& comm);

  // The gradient that the copy has gathered so far, which is in no lane's buffer: dropped, or
  // multiplied. Nothing happens on other lanes.
  void clear_gradient();
  void scale_gradient(double factor);

  // Adds the copy's gradient to the table's, in at least float32, and drops the copy's. Both call
  // it, after their last backward and before gradients are summed over replicas.
  void give_gradient(Comm& comm);

 private:
  at::Tensor table_;  // of this lane; undefined where there is nothing to do
  bool copy_ = false;
  int owner_ = -1;          // rank
  std::vector<int> ranks_;  // of both lanes in this replica, rising
};

}  // namespace entrain::engine
