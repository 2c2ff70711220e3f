#include "entrain/engine/train/optimizer.h"

namespace entrain::engine {

AdamW::AdamW(std::vector<TrainedPiece> trained, std::int64_t size, const OptimizerConfig& config)
    : config_(config), groups_(2) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options =
      trained.empty() ? at::TensorOptions(at::kFloat) : trained.front().value.options();
  moments_ = {at::zeros({size}, options), at::zeros({size}, options)};
  groups_[0].weight_decay = config.weight_decay;
  for (TrainedPiece& piece : trained) {
    ParameterGroup& group = groups_[piece.matrix ? 0 : 1];
    const std::int64_t length = piece.value.numel();
    group.first_moments.push_back(moments_[0].narrow(0, piece.begin, length));
    group.second_moments.push_back(moments_[1].narrow(0, piece.begin, length));
    group.steps.push_back(at::zeros({}, options.dtype(at::kFloat)));
    group.values.push_back(std::move(piece.value));
    group.gradients.push_back(std::move(piece.gradient));
  }
}

void AdamW::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  for (ParameterGroup& group : groups_) {
    if (group.values.empty()) {
      continue;
    }
    for (at::Tensor& count : group.steps) {
      count.add_(1);
    }
    at::_fused_adamw_(group.values,
                      group.gradients,
                      group.first_moments,
                      group.second_moments,
                      /*max_exp_avg_sqs=*/{},
                      group.steps,
                      learning_rate,
                      config_.beta1,
                      config_.beta2,
                      group.weight_decay,
                      config_.epsilon,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

void AdamW::set_updates(std::int64_t updates) {
  for (ParameterGroup& group : groups_) {
    for (at::Tensor& count : group.steps) {
      count.fill_(updates);
    }
  }
}

std::int64_t AdamW::bytes() const {
  return static_cast<std::int64_t>(moments_[0].nbytes() + moments_[1].nbytes());
}

}  // namespace entrain::engine
