// What a lane does once an update: gradients summed over replicas, their norm, the optimizer's
// step, and sharded weights gathered.
//
// Read first: StepEnd::run(). Part of a lane's run (lane_run.h), which calls it at these operations
// and tells it of backwards, since a reduction may begin beside the last ones.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "entrain/core/spec/program.h"

#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/lane_recorder.h"
#include "entrain/engine/pipeline/paced_reduction.h"

namespace entrain::engine {

class StepEnd {
 public:
  using Clock = LaneRecorder::Clock;

  // Requires  everything behind the arguments outlives this object.
  StepEnd(LaneContext& lane,
          const StepInputs& inputs,
          LaneRecorder& recorder,
          StepOutcome& outcome);

  // Before the first operation of a step that trains.
  void begin_step();

  // The stage of the lane that gets no more weight gradients behind the operation at this position,
  // if the step ends with a reduction; -1: none.
  [[nodiscard]] int last_for_stage(int position) const;
  // The backward or weight half at this position has run, since `start`.
  void made_gradients(int position, Clock::time_point start);

  // Requires  a kind that belongs to no unit.
  void run(OperationKind kind, int position, const std::function<void()>& optimizer_step);

 private:
  void join_gradients();
  void reduce_gradients(int position);
  void wait_for_buckets(int position);
  void clip_norm(int position);
  void step_optimizer(int position, const std::function<void()>& optimizer_step);
  void gather_parameters(int position);
  [[nodiscard]] std::chrono::nanoseconds sum_over_stages(
      std::chrono::nanoseconds StageCosts::*member) const;
  // With this rank's weights, one a replica.
  [[nodiscard]] std::vector<int> ranks_of_lane() const;

  LaneContext& lane_;
  const StepInputs& inputs_;
  LaneRecorder& recorder_;
  StepOutcome& outcome_;
  std::vector<int> last_of_stage_;  // [stage of the lane] position that ends its weight gradients
  PacedReduction paced_reduction_;
  bool joined_gradients_ = false;
};

}  // namespace entrain::engine
