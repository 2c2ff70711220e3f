#include "entrain/engine/pipeline/lane_weights.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

LaneWeights::LaneWeights(std::vector<NamedParameter> parameters,
                         at::ScalarType precision,
                         int num_shards,
                         int shard,
                         const std::vector<std::size_t>& bucket_begins)
    : parameters_(std::move(parameters)),
      layout_(parameters_, num_shards, bucket_begins),
      shard_(shard) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> views;
  at::Tensor exact;  // masters of all shards
  std::vector<NamedParameter> exact_views;
  std::size_t entry = 0;
  for (NamedParameter& parameter : parameters_) {
    const at::Tensor data = parameter.tensor.detach();
    if (!parameter.tensor.requires_grad()) {
      parameter.tensor.set_data(data.to(precision));
      continue;
    }
    if (!values_.defined()) {
      values_ = at::zeros({layout_.size()}, data.options().dtype(precision));
      views = layout_.views(values_);
      if (precision != data.scalar_type()) {
        exact = at::zeros({layout_.size()}, data.options());
        exact_views = layout_.views(exact);
      }
    }
    if (exact.defined()) {
      exact_views[entry].tensor.copy_(data);
    }
    views[entry].tensor.copy_(data);
    parameter.tensor.set_data(views[entry].tensor);
    ++entry;
  }
  if (exact.defined()) {
    masters_ = layout_.shard_of(exact, shard_);
  }
}

at::Tensor LaneWeights::master(const ShardPiece& piece) const {
  return masters_.defined() ? masters_.narrow(0, piece.begin, piece.size)
                            : values_.narrow(0, piece.place, piece.size);
}

void LaneWeights::round() {
  const at::NoGradGuard no_grad;
  if (masters_.defined()) {
    layout_.put_shard(masters_, shard_, values_);
  }
}

void LaneWeights::gather(Comm& comm, const std::vector<int>& ranks) {
  const at::NoGradGuard no_grad;
  if (values_.defined() && layout_.num_shards() > 1) {
    layout_.put_shards(comm.all_gather(layout_.shard_of(values_, shard_), ranks), values_);
  }
}

at::Tensor LaneWeights::whole(const at::Tensor& own,
                              Comm& comm,
                              const std::vector<int>& ranks) const {
  return layout_.size() > 0 && layout_.num_shards() > 1
             ? layout_.joined(comm.all_gather(own, ranks))
             : own;
}

void LaneWeights::take_shard(const at::Tensor& buffer, const at::Tensor& own) const {
  const at::NoGradGuard no_grad;
  own.copy_(layout_.shard_of(buffer, shard_));
}

std::vector<NamedParameter> LaneWeights::full(Comm& comm, const std::vector<int>& ranks) const {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> trained;
  if (values_.defined()) {
    trained = layout_.views(masters_.defined() ? whole(masters_, comm, ranks) : values_);
  }
  std::vector<NamedParameter> result;
  std::size_t entry = 0;
  for (const NamedParameter& parameter : parameters_) {
    const at::Tensor data = parameter.tensor.detach();
    result.push_back({parameter.name,
                      parameter.tensor.requires_grad()
                          ? trained[entry++].tensor
                          : data.to(at::promoteTypes(data.scalar_type(), at::kFloat)),
                      parameter.split});
  }
  return result;
}

void LaneWeights::set(const std::vector<NamedParameter>& values) {
  const at::NoGradGuard no_grad;
  ENTRAIN_INVARIANT(values.size() == parameters_.size(),
                    concat(values.size(), " weights for a lane that has ", parameters_.size()));
  std::vector<NamedParameter> exact;
  at::Tensor buffer;
  if (masters_.defined()) {
    buffer = at::zeros({layout_.size()}, masters_.options());
    exact = layout_.views(buffer);
  }
  std::size_t entry = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    at::Tensor target = parameters_[i].tensor.detach();
    target.copy_(values[i].tensor);
    if (masters_.defined() && parameters_[i].tensor.requires_grad()) {
      exact[entry++].tensor.copy_(values[i].tensor);
    }
  }
  if (masters_.defined()) {
    take_shard(buffer, masters_);
  }
}

std::int64_t LaneWeights::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const NamedParameter& parameter : parameters_) {
    bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
  return bytes;
}

std::int64_t LaneWeights::master_bytes() const {
  return masters_.defined() ? static_cast<std::int64_t>(masters_.nbytes()) : 0;
}

}  // namespace entrain::engine
