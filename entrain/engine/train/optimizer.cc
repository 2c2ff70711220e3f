#include "entrain/engine/train/optimizer.h"

#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/manifest.h"

namespace entrain::engine {

AdamW::AdamW(const std::vector<NamedParameter>& parameters, const OptimizerConfig& config)
    : config_(config), groups_(2) {
  groups_[0].weight_decay = config.weight_decay;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) {
      continue;
    }
    ParameterGroup& group = groups_[parameter.tensor.dim() >= 2 ? 0 : 1];
    const at::Tensor data = parameter.tensor.detach();
    group.names.push_back(parameter.name);
    group.parameters.push_back(parameter.tensor);
    group.first_moments.push_back(at::zeros_like(data));
    group.second_moments.push_back(at::zeros_like(data));
    group.steps.push_back(at::zeros({}, data.options().dtype(at::kFloat)));
  }
}

void AdamW::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  for (ParameterGroup& group : groups_) {
    if (group.parameters.empty()) {
      continue;
    }
    std::vector<at::Tensor> data;
    std::vector<at::Tensor> gradients;
    for (at::Tensor& parameter : group.parameters) {
      data.push_back(parameter.detach());
      const at::Tensor& gradient = parameter.grad();
      gradients.push_back(gradient.defined() ? gradient : at::zeros_like(data.back()));
    }
    for (at::Tensor& count : group.steps) {
      count.add_(1);
    }
    at::_fused_adamw_(data,
                      gradients,
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

std::vector<NamedParameter> AdamW::moments() const {
  std::vector<NamedParameter> moments;
  for (const ParameterGroup& group : groups_) {
    for (std::size_t i = 0; i < group.names.size(); ++i) {
      moments.push_back({concat(group.names[i], kMomentSuffixes[0]), group.first_moments[i]});
      moments.push_back({concat(group.names[i], kMomentSuffixes[1]), group.second_moments[i]});
    }
  }
  return moments;
}

void AdamW::set_updates(std::int64_t updates) {
  for (ParameterGroup& group : groups_) {
    for (at::Tensor& count : group.steps) {
      count.fill_(updates);
    }
  }
}

}  // namespace entrain::engine
