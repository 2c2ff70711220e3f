// Computes with the model: one autograd graph per group.
//
// Read first: RealCompute::forward(). A group's graph is released directly after its backward;
// groups without backward record none. An output's data moves with its message: the graph keeps
// only what its backward reads. The first half of a split backward keeps what its weight
// gradients read until the second half. Each chunk of a sample has its own graph; the graphs are
// linked by the keys and values that earlier chunks keep.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/weight_gradients.h"
#include "entrain/engine/pipeline/chunk_store.h"
#include "entrain/engine/pipeline/gradients.h"
#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/lane_context.h"
#include "entrain/engine/pipeline/lane_stages.h"
#include "entrain/engine/pipeline/lane_weights.h"
#include "entrain/engine/pipeline/overlapped_reduction.h"
#include "entrain/engine/pipeline/tied_table.h"

namespace entrain::engine {

class RealCompute : public LaneCompute {
 public:
  // `group`: the ranks that share the lane.
  // Requires  all arguments outlive this object.
  RealCompute(const LaneContext& lane,
              const LaneStages& stages,
              LaneWeights& weights,
              LaneGradients& gradients,
              const TensorGroup& group);

  void begin_step(const StepInputs& inputs, RunMode mode) override;
  void end_step() override;
  void read(const UnitWork& work, UnitInput& input) override;
  at::Tensor forward(const UnitWork& work, UnitInput& input) override;
  at::Tensor backward(const UnitWork& work, const at::Tensor& gradient, bool split) override;
  void backward_weight(const UnitWork& work) override;
  void note_end(const UnitWork& /*work*/, Clock::time_point /*start*/) override {}
  double take_losses() override;
  void join_gradients() override;
  std::optional<std::vector<Span>> reduce_gradients() override;
  double clip_gradients() override;
  void step_optimizer(const std::function<void()>& step) override;
  void gather_parameters() override;
  void scale_gradients(double factor) override;
  [[nodiscard]] at::Device device() const override { return lane_.options.stage.device; }

 private:
  // A group's graph from its forward to its backward.
  struct Graph {
    at::Tensor input;   // leaf whose gradient is sent upstream; undefined if none is
    at::Tensor output;  // root; without its data if that was sent
    WeightGradientsPtr weight_gradients;
  };
  struct Step {
    Step(const ModelSpec& model, const StepInputs& given)
        : inputs(given), sizes{model, *given.program, *given.costs}, chunks(sizes) {}
    const StepInputs& inputs;
    StepSizes sizes;
    ChunkStore chunks;
    std::map<UnitKey, Graph> graphs;
    std::map<UnitKey, WeightGradientsPtr> waiting;  // between the halves of a split backward
    std::vector<at::Tensor> losses;                 // on the LLM's last stage
    bool joined_gradients = false;
  };

  [[nodiscard]] bool is_llm(const UnitKey& unit) const;

  LaneContext lane_;
  const LaneStages& stages_;
  LaneWeights& weights_;
  LaneGradients& gradients_;
  const TensorGroup& group_;
  TiedTable tied_;
  std::optional<OverlappedReduction> overlap_;  // empty: gradients are reduced at the step's end
  std::optional<Step> step_;
};

}  // namespace entrain::engine
