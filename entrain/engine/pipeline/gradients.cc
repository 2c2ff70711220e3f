#include "entrain/engine/pipeline/gradients.h"

#include <cmath>

#include <ATen/core/grad_mode.h>

namespace entrain::engine {

LaneGradients::LaneGradients(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.requires_grad()) {
      parameters_.push_back(parameter.tensor);
    }
  }
}

void LaneGradients::clear() {
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
}

std::int64_t LaneGradients::bytes() const {
  std::int64_t sum = 0;
  for (const at::Tensor& parameter : parameters_) {
    sum += parameter.grad().defined() ? static_cast<std::int64_t>(parameter.grad().nbytes()) : 0;
  }
  return sum;
}

void LaneGradients::fill_missing() {
  for (at::Tensor& parameter : parameters_) {
    if (!parameter.grad().defined()) {
      parameter.mutable_grad() = at::zeros_like(parameter.detach());
    }
  }
}

void LaneGradients::reduce(Comm& comm, const std::vector<int>& ranks) {
  const at::NoGradGuard no_grad;
  fill_missing();
  if (parameters_.empty()) {
    comm.barrier(ranks);
    return;
  }
  std::int64_t size = 0;
  for (const at::Tensor& parameter : parameters_) {
    size += parameter.numel();
  }
  if (!flat_.defined()) {
    flat_ = at::empty({size}, parameters_.front().detach().options());
  }
  const auto for_each_share = [&](const auto& use) {
    std::int64_t begin = 0;
    for (at::Tensor& parameter : parameters_) {
      const at::Tensor& gradient = parameter.grad();
      at::Tensor share = flat_.narrow(0, begin, gradient.numel()).view(gradient.sizes());
      use(share, gradient);
      begin += gradient.numel();
    }
  };
  for_each_share([](at::Tensor& share, const at::Tensor& gradient) { share.copy_(gradient); });
  comm.all_reduce_sum(flat_, ranks);
  for_each_share([](at::Tensor& share, const at::Tensor& gradient) { gradient.copy_(share); });
}

double LaneGradients::clip(Comm& comm, const std::vector<int>& replica_ranks, double clip_norm) {
  const at::NoGradGuard no_grad;
  fill_missing();
  double squares = 0;
  for (const at::Tensor& parameter : parameters_) {
    const double norm =
        at::linalg_vector_norm(parameter.grad(), 2, std::nullopt, false, at::kDouble)
            .item<double>();
    squares += norm * norm;
  }
  at::Tensor total = at::full({1}, squares, at::TensorOptions().dtype(at::kDouble));
  comm.all_reduce_sum(total, replica_ranks);
  const double norm = std::sqrt(total.item<double>());
  if (clip_norm > 0 && norm > clip_norm) {
    for (const at::Tensor& parameter : parameters_) {
      parameter.grad().mul_(clip_norm / norm);
    }
  }
  return norm;
}

}  // namespace entrain::engine
