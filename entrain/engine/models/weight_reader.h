// Takes a layer's parameters one after another, in the order of parameters_of().
#pragma once

#include <optional>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/layers.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

class WeightReader {
 public:
  explicit WeightReader(const NamedParameter* first) : next_(first) {}

  const at::Tensor& take() { return (next_++)->tensor; }
  Matrix matrix(bool has_bias) {
    const at::Tensor& weight = take();
    return {weight, has_bias ? std::optional(take()) : std::nullopt};
  }
  // The input, normed by the next gain, and bias if the kind has one.
  at::Tensor normed(NormKind kind, const at::Tensor& input, double epsilon) {
    const at::Tensor& gain = take();
    return kind == NormKind::kRms ? rms_norm(input, gain, epsilon)
                                  : layer_norm(input, gain, take(), epsilon);
  }

 private:
  const NamedParameter* next_;
};

}  // namespace entrain::engine
