// One step of one lane: walks the lane's list of operations.
//
// Read first: LaneRun::run(). Receives are posted at their place in the list, sends never block the
// lane, a compute operation waits for its inputs. LaneCompute runs a group's forward and backward.
//
// Memory, if measured: what this thread allocates, less what it sends, plus what it receives: an
// activation from the time its receive is posted, a gradient while its backward runs.
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
  // Requires  all arguments outlive this object.
  LaneRun(const LaneContext& lane, LaneCompute& compute, const StepInputs& inputs, RunMode mode);

  StepOutcome run(const std::function<void()>& optimizer_step);

  // "rank 1 (replica 0 lane 1), step 7, forward llm 0 slot 2 group 0, samples a, b": the operation
  // in which run() threw.
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
  // Once per update: gradients summed over replicas, their norm, the optimizer's step, and sharded
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

  const LaneContext& lane_;
  LaneCompute& compute_;
  const StepInputs& inputs_;
  RunMode mode_;
  StepSizes sizes_;
  const ReplicaProgram& program_;
  const std::vector<Operation>& operations_;
  std::vector<int> last_of_stage_;  // [stage of the lane] position of its last weight gradient
  int position_ = 0;
  UnitTensors outputs_;
  UnitTensors gradients_;
  FeatureExchange features_;
  StepOutcome outcome_;
  LaneRecorder recorder_;
};

}  // namespace entrain::engine
