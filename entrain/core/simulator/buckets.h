// Gradient reductions that overlap compute: start and end of each bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

struct Bucket {
  std::int64_t start = 0;
  std::int64_t finish = 0;
};

class Buckets {
 public:
  // Buckets per stage; 0: reductions do not overlap, and nothing below is called.
  Buckets(const Program& program, const StageGraph& stages, const StepCosts& costs, int per_stage);

  [[nodiscard]] bool enabled() const { return per_stage_ > 0; }

  // Reports that a replica's operation computed weight gradients of a stage.
  void made(int replica, int module, int stage, std::int64_t start, std::int64_t finish) {
    last_[static_cast<std::size_t>(replica) * num_stages_ +
          static_cast<std::size_t>(stages_.number(module, stage))] = {start, finish};
  }

  // The buckets of a lane's reduce_gradients number `ordinal`, in the order in which they run. The
  // lane has arrived there on all replicas.
  const std::vector<Bucket>& run(int lane, int ordinal);

 private:
  void run_stage(const StageRef& ref, std::vector<Bucket>& buckets, std::int64_t& finish);

  const Program& program_;
  const StageGraph& stages_;
  const StepCosts& costs_;
  int per_stage_;
  std::size_t num_stages_;
  std::vector<Bucket> last_;  // [replica][stage of all modules]: the last weight gradient's times
  std::vector<std::vector<std::vector<Bucket>>> buckets_;  // [lane][ordinal]
  std::vector<std::int64_t> finish_;                       // [lane]: of its last bucket so far
};

}  // namespace entrain::simulation
