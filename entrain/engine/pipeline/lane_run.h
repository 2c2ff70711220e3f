// One step of one lane: walks the lane's list of operations.
//
// Read first: LaneRun::run(). Receives are posted where they stand, sends never hold the lane, a
// compute operation waits for its inputs. Every group is one autograd graph, dropped directly after
// its backward; groups without backward record none and live until their message has gone. An
// output's data goes on with its message: the graph keeps what its backward reads, no more. Of a
// split backward the first half leaves what its weight gradients read, until the second. Chunks of
// a sample are graphs of their own, linked by the keys and values that earlier ones keep.
//
// Memory, where measured: what this thread allocates, less what it sends, and what it receives: an
// activation from where its receive is posted, a gradient while its backward runs.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "entrain/engine/models/weight_gradients.h"
#include "entrain/engine/pipeline/chunk_store.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/feature_exchange.h"
#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/lane_recorder.h"
#include "entrain/engine/pipeline/step_end.h"
#include "entrain/engine/pipeline/unit_compute.h"
#include "entrain/engine/pipeline/unit_tensors.h"

namespace entrain::engine {

enum class RunMode : std::uint8_t { kTrain, kEvaluate };

class LaneRun {
 public:
  // Requires  everything behind the arguments outlives this object.
  LaneRun(LaneContext& lane, const StepInputs& inputs, RunMode mode);

  StepOutcome run(const std::function<void()>& optimizer_step);

  // "rank 1 (replica 0 lane 1), step 7, forward llm 0 slot 2 group 0, samples a, b": what run() was
  // doing when it threw.
  [[nodiscard]] std::string where() const;

 private:
  using Clock = LaneRecorder::Clock;

  // A group's graph from its forward to its backward.
  struct Graph {
    at::Tensor input;   // leaf whose gradient goes upstream; undefined where none does
    at::Tensor output;  // root; without its data where that has gone on
    WeightGradientsPtr weight_gradients;
  };

  [[nodiscard]] LoggedCall logged(const Operation& operation) const;
  [[nodiscard]] bool drills(FaultKind kind) const;
  void run_operation(const Operation& operation, const std::function<void()>& optimizer_step);
  void read_losses();
  void forward(const Operation& operation);
  UnitInput take_input(const UnitKey& unit, const Group& group, bool with_graph);
  void compute_forward(const UnitKey& unit, const Group& group, UnitInput& input, bool with_graph);
  void backward(const Operation& operation);
  void run_backward(Graph& graph, const at::Tensor& gradient, bool split);
  void backward_weight(const Operation& operation);
  void give_gradients(const UnitKey& unit, const Group& group, const at::Tensor& input);
  void send(const Operation& operation);
  void receive(const Operation& operation);

  at::Tensor take(UnitTensors& tensors, const UnitKey& unit);
  [[nodiscard]] bool is_first_llm_stage(const UnitKey& unit) const;
  [[nodiscard]] bool is_last_llm_stage(const UnitKey& unit) const;
  [[nodiscard]] bool takes_backward(const Group& group, int stage) const;
  [[nodiscard]] at::Tensor paced_tensor(const UnitKey& unit, const Group& group) const;
  [[nodiscard]] at::TensorOptions message_options() const;
  [[nodiscard]] const Group& group(const UnitKey& unit) const;
  [[nodiscard]] const Channel& channel(const Operation& operation) const;
  [[nodiscard]] bool is_skipped(const Operation& operation) const;
  [[nodiscard]] RankPlace place() const;
  [[nodiscard]] std::uint64_t tag(const Operation& operation) const;

  LaneContext& lane_;
  const StepInputs& inputs_;
  RunMode mode_;
  StepSizes sizes_;
  const ReplicaProgram& program_;
  const std::vector<Operation>& operations_;
  int position_ = 0;
  int drill_position_ = -1;  // where this rank misbehaves; -1: nowhere
  UnitTensors outputs_;
  UnitTensors gradients_;
  FeatureExchange features_;
  ChunkStore chunks_;
  std::map<UnitKey, Graph> graphs_;
  std::map<UnitKey, WeightGradientsPtr> waiting_;  // between the halves of a split backward
  std::vector<at::Tensor> losses_;  // of the LLM's last stage, not yet in the outcome
  StepOutcome outcome_;
  LaneRecorder recorder_;
  StepEnd end_;
};

}  // namespace entrain::engine
