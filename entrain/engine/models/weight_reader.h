// Takes a layer's parameters one after another, in the order of parameters_of().
#pragma once

#include <optional>
#include <span>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

class WeightReader {
 public:
  WeightReader(std::span<const NamedParameter> layer, const LoraSpec& lora)
      : layer_(layer), lora_(lora) {}

  const at::Tensor& take() { return layer_[next_++].tensor; }
  // With its adapter if it has one.
  Matrix matrix(bool has_bias) {
    const at::Tensor& weight = take();
    Matrix result = {weight, has_bias ? std::optional(take()) : std::nullopt};
    if (next_ < layer_.size() && layer_[next_].name.ends_with(kLoraA)) {
      const at::Tensor& down = take();
      result.adapter = {down, take(), lora_.scale()};
    }
    return result;
  }
  // The input, normed by the next gain, and bias if the kind has one.
  at::Tensor normed(NormKind kind, const at::Tensor& input, double epsilon) {
    const at::Tensor& gain = take();
    return kind == NormKind::kRms ? rms_norm(input, gain, epsilon)
                                  : layer_norm(input, gain, take(), epsilon);
  }

 private:
  std::span<const NamedParameter> layer_;
  const LoraSpec& lora_;
  std::size_t next_ = 0;
};

}  // namespace entrain::engine
