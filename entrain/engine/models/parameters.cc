#include "entrain/engine/models/parameters.h"

#include <cmath>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/audio_layers.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {
namespace {

// `draw`: Rng& → double, a number at a time.
template <class Draw>
at::Tensor drawn(const std::string& name,
                 const std::vector<std::int64_t>& shape,
                 const StageOptions& options,
                 const Draw& draw) {
  if (options.device.is_meta()) {
    return at::empty(shape, at::TensorOptions(options.device).dtype(options.dtype));
  }
  Rng random(options.seed, hash_of(name));
  at::Tensor values = at::empty(shape, at::TensorOptions(at::kFloat));
  float* out = values.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    out[i] = static_cast<float>(draw(random));
  }
  return values.to(options.device, options.dtype);
}

at::Tensor initial_value(const ParameterSpec& parameter,
                         const StageOptions& options,
                         int num_layers) {
  const int degree = options.tensor_parallel;
  if (parameter.role == ParameterRole::kGain || parameter.role == ParameterRole::kBias ||
      parameter.role == ParameterRole::kLoraB) {
    return at::full(part_shape(parameter.shape, parameter.split, degree),
                    parameter.role == ParameterRole::kGain ? 1.0 : 0.0,
                    at::TensorOptions(options.device).dtype(options.dtype));
  }
  if (parameter.role == ParameterRole::kSinusoids) {
    return sinusoid_table(parameter.shape[0], parameter.shape[1]).to(options.device, options.dtype);
  }
  const double deviation =
      initial_deviation(parameter.role, parameter.count() / parameter.shape.front(), num_layers);
  const auto draw = [&](const std::vector<std::int64_t>& shape) {
    return parameter.role == ParameterRole::kLoraA
               ? drawn(parameter.name,
                       shape,
                       options,
                       [deviation](Rng& random) { return (2 * random.uniform() - 1) * deviation; })
               : initial_weight(parameter.name, shape, deviation, options);
  };
  if (options.tensor_group == nullptr) {
    return draw(part_shape(parameter.shape, parameter.split, degree));
  }
  const at::Tensor whole = draw(parameter.shape);
  const at::Tensor part = part_of(whole, parameter.split, options.tensor_group->index, degree);
  return degree > 1 && !parameter.split.whole() ? part.clone() : part;
}

}  // namespace

at::Tensor initial_weight(const std::string& name,
                          std::vector<std::int64_t> shape,
                          double deviation,
                          const StageOptions& options) {
  return drawn(
      name, shape, options, [deviation](Rng& random) { return random.normal() * deviation; });
}

double initial_deviation(ParameterRole role, std::int64_t fan_in, int num_layers) {
  if (role == ParameterRole::kEmbedding) {
    return 0.02;
  }
  const double plain = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return role == ParameterRole::kResidualLinear ? plain / std::sqrt(2.0 * num_layers) : plain;
}

NamedParameter initial_parameter(const ParameterSpec& parameter,
                                 const StageOptions& options,
                                 int num_layers) {
  at::Tensor tensor = initial_value(parameter, options, num_layers);
  tensor.set_requires_grad(parameter.trainable);
  return {parameter.name, std::move(tensor), parameter.split};
}

void check_layers(const std::string& module, LayerRange layers, int num_layers) {
  if (layers.begin < 0 || layers.begin >= layers.end || layers.end > num_layers) {
    throw InvalidInput(concat("stage of ",
                              module,
                              ": layers [",
                              layers.begin,
                              ", ",
                              layers.end,
                              ") given, allowed are non-empty ranges within [0, ",
                              num_layers,
                              ")"));
  }
}

}  // namespace entrain::engine
