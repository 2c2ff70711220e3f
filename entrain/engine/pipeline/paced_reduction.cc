#include "entrain/engine/pipeline/paced_reduction.h"

#include "entrain/core/graph/step_graph.h"

namespace entrain::engine {

std::vector<simulation::Bucket> PacedReduction::buckets(const Program& program,
                                                        const StepCosts& costs,
                                                        int lane,
                                                        Comm& comm,
                                                        const std::vector<int>& ranks) const {
  const auto num_stages = static_cast<std::int64_t>(last_.size());
  at::Tensor own = at::empty({2 * num_stages}, at::kLong);
  for (std::int64_t stage = 0; stage < num_stages; ++stage) {
    own[2 * stage] = last_[static_cast<std::size_t>(stage)].start;
    own[2 * stage + 1] = last_[static_cast<std::size_t>(stage)].finish;
  }
  const at::Tensor all = comm.all_gather(own, ranks);
  const StageGraph stages = stage_graph(program, costs.link);
  simulation::Buckets buckets(program, stages, costs, costs.reduce_buckets);
  const std::int64_t* times = all.const_data_ptr<std::int64_t>();
  for (std::size_t replica = 0; replica < ranks.size(); ++replica) {
    for (const StageRef& ref : program.lanes[static_cast<std::size_t>(lane)]) {
      buckets.made(static_cast<int>(replica), ref.module, ref.stage, times[0], times[1]);
      times += 2;
    }
  }
  return buckets.run(lane, 0);
}

}  // namespace entrain::engine
