#include "entrain/engine/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>

namespace entrain::engine {

double learning_rate_at(const OptimizerConfig& config, std::int64_t update, std::int64_t updates) {
  if (update < config.warmup_steps) {
    return config.learning_rate * static_cast<double>(update + 1) / config.warmup_steps;
  }
  const auto left = static_cast<double>(std::max<std::int64_t>(1, updates - config.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(update - config.warmup_steps) / left);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.learning_rate * (config.final_fraction + (1.0 - config.final_fraction) * cosine);
}

AdamW::AdamW(std::vector<TrainedPiece> trained, std::int64_t size, const OptimizerConfig& config) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options =
      trained.empty() ? at::TensorOptions(at::kFloat) : trained.front().value.options();
  moments_ = {at::zeros({size}, options), at::zeros({size}, options)};
  std::map<std::pair<std::string, bool>, std::size_t> group_of;  // by part, matrices or vectors
  for (TrainedPiece& piece : trained) {
    const auto [found, is_new] = group_of.try_emplace({piece.part, piece.matrix}, groups_.size());
    if (is_new) {
      ParameterGroup& added = groups_.emplace_back();
      added.config = optimizer_of(config, piece.part);
      added.weight_decay = piece.matrix ? added.config.weight_decay : 0;
    }
    ParameterGroup& group = groups_[found->second];
    const std::int64_t length = piece.value.numel();
    group.first_moments.push_back(moments_[0].narrow(0, piece.begin, length));
    group.second_moments.push_back(moments_[1].narrow(0, piece.begin, length));
    group.steps.push_back(at::zeros({}, options.dtype(at::kFloat)));
    group.values.push_back(std::move(piece.value));
    group.gradients.push_back(std::move(piece.gradient));
  }
}

void AdamW::step(std::int64_t update, std::int64_t updates) {
  const at::NoGradGuard no_grad;
  for (ParameterGroup& group : groups_) {
    for (at::Tensor& count : group.steps) {
      count.add_(1);
    }
    at::_fused_adamw_(group.values,
                      group.gradients,
                      group.first_moments,
                      group.second_moments,
                      /*max_exp_avg_sqs=*/{},
                      group.steps,
                      learning_rate_at(group.config, update, updates),
                      group.config.beta1,
                      group.config.beta2,
                      group.weight_decay,
                      group.config.epsilon,
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
