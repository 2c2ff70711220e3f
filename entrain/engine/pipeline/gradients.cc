#include "entrain/engine/pipeline/gradients.h"

#include <cmath>

#include <ATen/core/grad_mode.h>

#include "entrain/engine/comm/unreported.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {

LaneGradients::LaneGradients(const std::vector<NamedParameter>& parameters,
                             int num_shards,
                             int shard,
                             int tensor_rank,
                             const std::vector<std::size_t>& bucket_begins)
    : layout_(parameters, num_shards, bucket_begins),
      shard_(shard),
      counts_whole_(tensor_rank == 0) {
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
    while (buckets_to_send() > 0) {
      send_bucket(comm, ranks);
    }
    sum_slices(ranks);
  }
}

void LaneGradients::send_bucket(Comm& comm, const std::vector<int>& ranks) {
  const at::NoGradGuard no_grad;
  const Unreported unreported;  // as for any collective
  const FlatBucket& bucket = layout_.buckets()[buckets_to_send() - 1];
  const auto tag = static_cast<std::uint64_t>(sent_++);
  Incoming& incoming = incoming_.emplace_back(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != comm.rank()) {
      incoming[i] = comm.post_receive(
          {ranks[i], comm.rank(), kGradientChannel}, tag, {bucket.slice_size}, buffer_.options());
    }
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != comm.rank()) {
      comm.send({comm.rank(), ranks[i], kGradientChannel},
                tag,
                layout_.slice_of(buffer_, bucket, static_cast<int>(i)));
    }
  }
}

void LaneGradients::sum_slices(const std::vector<int>& ranks) {
  const Unreported unreported;
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    const FlatBucket& bucket = layout_.buckets()[layout_.buckets().size() - 1 - i];
    at::Tensor own = layout_.slice_of(buffer_, bucket, shard_);
    at::Tensor sum;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::unique_ptr<PendingReceive>& receive = incoming_[i][rank];
      const at::Tensor part = receive == nullptr ? own : receive->wait();
      sum = rank == 0 ? part.clone() : sum.add_(part);
      receive.reset();
    }
    own.copy_(sum);
  }
  incoming_.clear();
  sent_ = 0;
}

double LaneGradients::clip(Comm& comm, const std::vector<int>& ranks, double clip_norm) {
  const at::NoGradGuard no_grad;
  const std::vector<ShardPiece> pieces = layout_.pieces(shard_);
  double squares = 0;
  for (const ShardPiece& piece : pieces) {
    if (piece.entry->split.whole() && !counts_whole_) {
      continue;
    }
    const double norm =
        at::linalg_vector_norm(
            buffer_.narrow(0, piece.place, piece.size), 2, std::nullopt, false, at::kDouble)
            .item<double>();
    squares += norm * norm;
  }
  at::Tensor total = at::full({1}, squares, at::TensorOptions().dtype(at::kDouble));
  comm.all_reduce_sum(total, ranks);
  const double norm = std::sqrt(total.item<double>());
  if (clip_norm > 0 && norm > clip_norm) {
    for (const ShardPiece& piece : pieces) {
      buffer_.narrow(0, piece.place, piece.size).mul_(clip_norm / norm);
    }
  }
  return norm;
}

}  // namespace entrain::engine
