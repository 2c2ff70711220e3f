#include "entrain/engine/pipeline/lane_weights.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

LaneWeights::LaneWeights(std::vector<NamedParameter> parameters,
                         at::ScalarType precision,
                         int num_shards,
                         int shard)
    : parameters_(std::move(parameters)), layout_(parameters_, num_shards), shard_(shard) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> views;
  std::vector<NamedParameter> exact;  // of masters of all shards
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
      const bool narrow = precision != data.scalar_type();
      masters_ = narrow ? at::zeros({layout_.size()}, data.options()) : values_;
      exact = layout_.views(masters_);
    }
    exact[entry].tensor.copy_(data);
    views[entry].tensor.copy_(data);
    parameter.tensor.set_data(views[entry].tensor);
    ++entry;
  }
  if (masters_.defined()) {
    const at::Tensor own = layout_.shard_of(masters_, shard_);
    masters_ = masters_.is_same(values_) || num_shards == 1 ? own : own.clone();
  }
}

void LaneWeights::round() {
  const at::NoGradGuard no_grad;
  if (masters_.defined() && masters_.scalar_type() != values_.scalar_type()) {
    layout_.shard_of(values_, shard_).copy_(masters_);
  }
}

void LaneWeights::gather(Comm& comm, const std::vector<int>& ranks) {
  const at::NoGradGuard no_grad;
  if (values_.defined() && layout_.num_shards() > 1) {
    values_.copy_(comm.all_gather(layout_.shard_of(values_, shard_), ranks));
  }
}

at::Tensor LaneWeights::whole(const at::Tensor& own,
                              Comm& comm,
                              const std::vector<int>& ranks) const {
  return layout_.size() > 0 && layout_.num_shards() > 1 ? comm.all_gather(own, ranks) : own;
}

void LaneWeights::take_shard(const at::Tensor& buffer, const at::Tensor& own) const {
  const at::NoGradGuard no_grad;
  own.copy_(layout_.shard_of(buffer, shard_));
}

std::vector<NamedParameter> LaneWeights::full(Comm& comm, const std::vector<int>& ranks) const {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> trained;
  if (masters_.defined()) {
    const bool narrow = masters_.scalar_type() != values_.scalar_type();
    trained = layout_.views(narrow ? whole(masters_, comm, ranks) : values_);
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
    if (parameters_[i].tensor.requires_grad()) {
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
  const bool narrow = masters_.defined() && masters_.scalar_type() != values_.scalar_type();
  return narrow ? static_cast<std::int64_t>(masters_.nbytes()) : 0;
}

}  // namespace entrain::engine
