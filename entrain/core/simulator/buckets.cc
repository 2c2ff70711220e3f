#include "entrain/core/simulator/buckets.h"

#include <algorithm>

#include "entrain/core/base/at.h"

namespace entrain::simulation {
namespace {

// The first `part` of `parts` equal parts of a time, rounded down.
std::int64_t share(std::int64_t time, int part, int parts) {
  return time / parts * part + time % parts * part / parts;
}

}  // namespace

Buckets::Buckets(const Program& program,
                 const StageGraph& stages,
                 const StepCosts& costs,
                 int per_stage)
    : program_(program),
      stages_(stages),
      costs_(costs),
      per_stage_(per_stage),
      num_stages_(stages.stages.size()) {
  if (enabled()) {
    last_.resize(program.replicas.size() * num_stages_);
    buckets_.resize(program.lanes.size());
    finish_.assign(program.lanes.size(), 0);
  }
}

const std::vector<Bucket>& Buckets::run(int lane, int ordinal) {
  auto& of_lane = buckets_[at(lane)];
  if (at(ordinal) == of_lane.size()) {
    std::vector<Bucket>& buckets = of_lane.emplace_back();
    const std::vector<StageRef>& stages = program_.lanes[at(lane)];
    for (auto ref = stages.rbegin(); ref != stages.rend(); ++ref) {
      if (costs_.modules[at(ref->module)].stages[at(ref->stage)].trainable) {
        run_stage(*ref, buckets, finish_[at(lane)]);
      }
    }
  }
  return of_lane[at(ordinal)];
}

void Buckets::run_stage(const StageRef& ref, std::vector<Bucket>& buckets, std::int64_t& finish) {
  const std::int64_t reduce = costs_.modules[at(ref.module)].stages[at(ref.stage)].reduce.count();
  const std::size_t stage = at(stages_.number(ref.module, ref.stage));
  for (int i = 0; i < per_stage_; ++i) {
    std::int64_t ready = 0;
    for (std::size_t replica = 0; replica < program_.replicas.size(); ++replica) {
      const Bucket& last = last_[replica * num_stages_ + stage];
      ready = std::max(ready, last.start + share(last.finish - last.start, i + 1, per_stage_));
    }
    const std::int64_t start = std::max(finish, ready);
    finish = start + share(reduce, i + 1, per_stage_) - share(reduce, i, per_stage_);
    buckets.push_back({start, finish});
  }
  for (std::size_t replica = 0; replica < program_.replicas.size(); ++replica) {
    last_[replica * num_stages_ + stage] = {};
  }
}

}  // namespace entrain::simulation
