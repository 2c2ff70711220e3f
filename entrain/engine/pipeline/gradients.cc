#include "entrain/engine/pipeline/gradients.h"

#include <cmath>

#include <ATen/core/grad_mode.h>

#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {

LaneGradients::LaneGradients(const std::vector<NamedParameter>& parameters,
                             int num_shards,
                             int shard,
                             int tensor_rank)
    : layout_(parameters, num_shards), shard_(shard), counts_whole_(tensor_rank == 0) {
  std::size_t entry = 0;
  std::vector<NamedParameter> views;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) {
      continue;
    }
    if (!buffer_.defined()) {
      const at::ScalarType dtype = parameter.tensor.scalar_type();
      buffer_ =
          at::zeros({layout_.size()},
                    parameter.tensor.detach().options().dtype(at::promoteTypes(dtype, at::kFloat)));
      views = layout_.views(buffer_);
    }
    parameter.tensor.set_grad_dtype(buffer_.scalar_type());
    parameter.tensor.mutable_grad() = views[entry++].tensor;
  }
}

void LaneGradients::clear() {
  if (buffer_.defined()) {
    buffer_.zero_();
  }
}

void LaneGradients::scale(double factor) {
  if (buffer_.defined()) {
    buffer_.mul_(factor);
  }
}

at::Tensor LaneGradients::own_shard() const {
  return buffer_.defined() ? layout_.shard_of(buffer_, shard_) : at::Tensor();
}

void LaneGradients::sum_whole(const TensorGroup& group) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own;
  for (const NamedParameter& view :
       buffer_.defined() ? layout_.views(buffer_) : std::vector<NamedParameter>()) {
    if (view.split.whole()) {
      own.push_back(view.tensor.view(-1));
    }
  }
  if (own.empty()) {
    return;
  }
  at::Tensor sum = at::cat(own);
  sum_over(group, sum);
  std::int64_t begin = 0;
  for (const at::Tensor& gradient : own) {
    gradient.copy_(sum.narrow(0, begin, gradient.numel()));
    begin += gradient.numel();
  }
}

void LaneGradients::reduce(Comm& comm, const std::vector<int>& ranks) {
  const at::NoGradGuard no_grad;
  if (!buffer_.defined()) {
    comm.barrier(ranks);
  } else if (layout_.num_shards() == 1) {
    comm.all_reduce_sum(buffer_, ranks);
  } else {
    own_shard().copy_(comm.reduce_scatter_sum(buffer_, ranks));
  }
}

double LaneGradients::clip(Comm& comm, const std::vector<int>& ranks, double clip_norm) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = own_shard();
  double squares = 0;
  for (const ShardPiece& piece : layout_.pieces(shard_)) {
    if (piece.entry->split.whole() && !counts_whole_) {
      continue;
    }
    const double norm =
        at::linalg_vector_norm(
            own.narrow(0, piece.begin, piece.size), 2, std::nullopt, false, at::kDouble)
            .item<double>();
    squares += norm * norm;
  }
  at::Tensor total = at::full({1}, squares, at::TensorOptions().dtype(at::kDouble));
  comm.all_reduce_sum(total, ranks);
  const double norm = std::sqrt(total.item<double>());
  if (clip_norm > 0 && norm > clip_norm && own.defined()) {
    own.mul_(clip_norm / norm);
  }
  return norm;
}

}  // namespace entrain::engine
