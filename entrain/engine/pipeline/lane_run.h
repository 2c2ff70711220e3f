// One step of one lane: walks the lane's list of operations.
//
// Read first: LaneRun::run(). Receives are posted where they stand, sends never hold the lane, a
// compute operation waits for its inputs. What a group's forward and backward are is LaneCompute's
// business.
//
// Memory, where measured: what this thread allocates, less what it sends, and what it receives: an
// activation from where its receive is posted, a gradient while its backward runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "entrain/engine/pipeline/feature_exchange.h"
#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/lane_recorder.h"
#include "entrain/engine/pipeline/lane_step.h"
#include "entrain/engine/pipeline/unit_tensors.h"

namespace entrain::engine {

class LaneRun {
 public:
  // Requires  everything behind the arguments outlives this object.
  LaneRun(const LaneContext& lane, LaneCompute& compute, const StepInputs& inputs, RunMode mode);

  StepOutcome run(const std::function<void()>& optimizer_step);

  // "rank 1 (replica 0 lane 1), step 7, forward llm 0 slot 2 group 0, samples a, b": what run() was
  // doing when it threw.
  [[nodiscard]] std::string where() const;

 private:
  using Clock = LaneRecorder::Clock;

  [[nodiscard]] LoggedCall logged(const Operation& operation) const;
  void forward(const Operation& operation);
  UnitInput take_input(const UnitWork& work);
  void backward(const Operation& operation);
  void backward_weight(const Operation& operation);
  void send(const Operation& operation);
  void receive(const Operation& operation);
  // Once an update: gradients summed over replicas, their norm, the optimizer's step, and sharded
  // weights gathered.
  void reduce_gradients();
  void clip_gradients();
  void step_optimizer(const std::function<void()>& optimizer_step);
  void gather_parameters();

  at::Tensor take(UnitTensors& tensors, const UnitKey& unit);
  [[nodiscard]] UnitWork work_of(const Operation& operation) const;
  [[nodiscard]] bool is_first_llm_stage(const UnitKey& unit) const;
  [[nodiscard]] bool takes_backward(const Group& group, int stage) const;
  [[nodiscard]] const Group& group(const UnitKey& unit) const;
  [[nodiscard]] const Channel& channel(const Operation& operation) const;
  [[nodiscard]] bool is_skipped(const Operation& operation) const;
  [[nodiscard]] std::uint64_t tag(const Operation& operation) const;
  // With this rank's weights, one a replica.
  [[nodiscard]] std::vector<int> ranks_of_lane() const;

  const LaneContext& lane_;
  LaneCompute& compute_;
  const StepInputs& inputs_;
  RunMode mode_;
  StepSizes sizes_;
  const ReplicaProgram& program_;
  const std::vector<Operation>& operations_;
  std::vector<int> last_of_stage_;  // [stage of the lane] position that ends its weight gradients
  int position_ = 0;
  UnitTensors outputs_;
  UnitTensors gradients_;
  FeatureExchange features_;
  StepOutcome outcome_;
  LaneRecorder recorder_;
};

}  // namespace entrain::engine
