#include "entrain/engine/pipeline/real_compute.h"

#include <utility>

#include <c10/core/GradMode.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

#include "entrain/engine/models/device.h"

namespace entrain::engine {
namespace {

// Indices in stages.parameters() of those whose gradients another rank of the replica, or another
// stage of the lane, adds to.
std::vector<char> late_parameters(const LaneContext& lane,
                                  const LaneStages& stages,
                                  const TensorGroup& group) {
  std::vector<char> late;
  for (const NamedParameter& parameter : stages.parameters()) {
    const bool table = lane.model.llm.tie_word_embeddings && stages.is_table(parameter.tensor);
    late.push_back(table || (group.size() > 1 && parameter.split.whole()) ? 1 : 0);
  }
  return late;
}

// Releases the values of a leaf of which only the gradient is still needed; its shape stays.
void release_values(at::Tensor& leaf) {
  leaf.set_data(at::zeros({}, leaf.options().requires_grad(false)).expand(leaf.sizes()));
}

}  // namespace

RealCompute::RealCompute(const LaneContext& lane,
                         const LaneStages& stages,
                         LaneWeights& weights,
                         LaneGradients& gradients,
                         const TensorGroup& group)
    : lane_(lane),
      stages_(stages),
      weights_(weights),
      gradients_(gradients),
      group_(group),
      tied_(lane.model, lane.plan, lane.place, stages, lane.options.stage.dtype) {
  if (lane.options.overlap_reduction && gradients.layout().num_shards() > 1 &&
      !stages.parameters().empty()) {
    overlap_.emplace(
        stages, late_parameters(lane, stages, group), gradients, lane.comm, lane.across_replicas());
  }
}

void RealCompute::begin_step(const StepInputs& inputs, RunMode mode) {
  ENTRAIN_INVARIANT(inputs.data != nullptr, "a step without data");
  step_.emplace(lane_.model, inputs);
  if (mode == RunMode::kTrain && inputs.begins_update) {
    gradients_.clear();
    tied_.clear_gradient();
  }
  tied_.share(lane_.comm);
  if (overlap_.has_value() && mode == RunMode::kTrain && inputs.ends_update) {
    overlap_->begin_step();
  }
}

void RealCompute::end_step() {
  ENTRAIN_INVARIANT(step_->graphs.empty() && step_->waiting.empty() && step_->chunks.empty(),
                    "tensors are left over at the end of the step");
  step_.reset();
}

void RealCompute::read(const UnitWork& work, UnitInput& input) {
  read_data(
      step_->sizes, *step_->inputs.sample_ids, work.unit, work.group, *step_->inputs.data, input);
  if (is_llm(work.unit)) {
    input.items = step_->chunks.items_of(work.unit.stage, work.group, work.with_graph);
    place_items(step_->sizes, work.group, input);
  }
}

at::Tensor RealCompute::forward(const UnitWork& work, UnitInput& input) {
  const UnitKey& unit = work.unit;
  const StageOptions& options = lane_.options.stage;
  const c10::AutoGradMode grad_mode(work.with_graph);
  Graph graph;
  if (work.with_graph) {
    graph.weight_gradients = c10::make_intrusive<WeightGradients>();
  }
  const WeightGradientsScope scope(graph.weight_gradients);
  at::Tensor received = input.hidden;
  if (received.defined() && received.requires_grad()) {
    graph.input = received;
  }
  bool keeps_input = true;
  at::Tensor loss_sum;
  if (is_llm(unit)) {
    const LlmStage& stage = stages_.llm(unit.stage);
    at::Tensor hidden = llm_input(step_->sizes, stage, options, unit, work.group, input);
    graph.output = stage.decode(hidden, input.items);
    hidden.reset();
    if (is_last_llm_stage(*step_->inputs.program, unit)) {
      loss_sum = losses_of(stage, options, input, graph.output);
      graph.output = loss_sum / static_cast<double>(step_->inputs.target_tokens);
    }
    step_->chunks.after_forward(unit.stage, work.group);
    keeps_input = stage.keeps_input();
  } else {
    const EncoderStage& stage = stages_.encoder(unit.module, unit.stage);
    const EncoderInput rows = encoder_input(step_->sizes, options, unit, work.group, input);
    graph.output = stage.forward(rows.hidden, rows.grids);
    keeps_input = stage.keeps_input();
  }
  if (received.defined() && !keeps_input) {
    release_values(received);
  }
  // A chunk may have a backward because of features that are in fact in a later chunk.
  ENTRAIN_INVARIANT(!work.with_graph || graph.output.requires_grad() || has_chunks(work.group),
                    "a group takes part in backward, but nothing in its graph is trainable");
  at::Tensor result;
  if (!loss_sum.defined()) {
    result = graph.output.detach();
    if (work.with_graph) {
      graph.output.set_data(at::empty({0}, graph.output.options().requires_grad(false)));
    }
  } else if (lane_.place.tensor_rank == 0) {
    step_->losses.push_back(loss_sum.detach());
  }
  if (work.with_graph) {
    step_->graphs.emplace(unit, std::move(graph));
  }
  return result;
}

at::Tensor RealCompute::backward(const UnitWork& work, const at::Tensor& gradient, bool split) {
  const auto found = step_->graphs.find(work.unit);
  ENTRAIN_INVARIANT(found != step_->graphs.end(),
                    "backward without a forward that recorded its graph");
  Graph graph = std::move(found->second);
  step_->graphs.erase(found);
  if (split) {
    graph.weight_gradients->defer();
  }
  const bool last = overlap_.has_value() && work.last_for_stage >= 0;
  if (last) {
    overlap_->begin_last(at(work.last_for_stage));
  }
  if (graph.output.requires_grad()) {
    graph.output.backward(gradient);
  }
  if (last) {
    overlap_->end_last(at(work.last_for_stage));
  }
  if (is_llm(work.unit)) {
    step_->chunks.after_backward(work.unit.stage, work.group);
  }
  if (split) {
    step_->waiting.emplace(work.unit, std::move(graph.weight_gradients));
  }
  if (!graph.input.defined()) {
    return {};
  }
  at::Tensor result = graph.input.grad();
  return result.defined() ? result : at::zeros_like(graph.input.detach());
}

void RealCompute::backward_weight(const UnitWork& work) {
  const auto found = step_->waiting.find(work.unit);
  ENTRAIN_INVARIANT(found != step_->waiting.end(), "a weight half before its input half");
  const WeightGradientsPtr weights = std::move(found->second);
  step_->waiting.erase(found);
  if (!overlap_.has_value() || work.last_for_stage < 0) {
    return weights->run();
  }
  overlap_->begin_last(at(work.last_for_stage), *weights);
  weights->run([&](const at::Tensor& parameter) { overlap_->added(parameter); });
  overlap_->end_last(at(work.last_for_stage));
}

// All at once, in the order of the groups: waits for the device once per step.
double RealCompute::take_losses() {
  double sum = 0;
  if (!step_->losses.empty()) {
    const at::Tensor losses = at::stack(step_->losses).to(at::kCPU, at::kDouble);
    step_->losses.clear();
    for (std::int64_t i = 0; i < losses.size(0); ++i) {
      sum += losses.const_data_ptr<double>()[i];
    }
  }
  return sum;
}

void RealCompute::join_gradients() {
  if (std::exchange(step_->joined_gradients, true)) {
    return;
  }
  if (overlap_.has_value()) {
    overlap_->end_step();
  }
  tied_.give_gradient(lane_.comm);
  gradients_.sum_whole(group_);
}

std::optional<std::vector<LaneCompute::Span>> RealCompute::reduce_gradients() {
  gradients_.reduce(lane_.comm, lane_.across_replicas());
  return std::nullopt;
}

double RealCompute::clip_gradients() {
  return gradients_.clip(lane_.comm,
                         lane_.plan.shard_optimizer ? lane_.places.all()
                                                    : lane_.places.of_replica(lane_.place.replica),
                         lane_.options.clip_norm);
}

void RealCompute::step_optimizer(const std::function<void()>& step) {
  if (step) {
    step();
    weights_.round();
    wait_for_device(device());  // so that the host's clock includes it
  }
}

void RealCompute::gather_parameters() {
  weights_.gather(lane_.comm, lane_.across_replicas());
}

void RealCompute::scale_gradients(double factor) {
  gradients_.scale(factor);
  tied_.scale_gradient(factor);
}

bool RealCompute::is_llm(const UnitKey& unit) const {
  return unit.module == step_->inputs.program->llm_module();
}

}  // namespace entrain::engine
