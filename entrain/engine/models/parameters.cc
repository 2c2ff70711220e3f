#include "entrain/engine/models/parameters.h"

#include <cmath>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {

at::Tensor initial_weight(const std::string& name,
                          std::vector<std::int64_t> shape,
                          double deviation,
                          const StageOptions& options) {
  if (options.device.is_meta()) {
    return at::empty(shape, at::TensorOptions(options.device).dtype(options.dtype));
  }
  Rng random(options.seed, hash_of(name));
  at::Tensor values = at::empty(shape, at::TensorOptions(at::kFloat));
  float* out = values.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    out[i] = static_cast<float>(random.normal() * deviation);
  }
  return values.to(options.device, options.dtype);
}

double initial_deviation(ParameterRole role, std::int64_t fan_in, int num_layers) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(fan_in));
  switch (role) {
    case ParameterRole::kEmbedding:
      return 0.02;
    case ParameterRole::kResidualLinear:
      return plain / std::sqrt(2.0 * num_layers);
    case ParameterRole::kLinear:
      break;
  }
  return plain;
}

void ParameterBuilder::add_matrix(const std::string& name,
                                  std::int64_t rows,
                                  std::int64_t columns,
                                  ParameterRole role,
                                  const ParameterSplit& split) {
  draw(name, {rows, columns}, initial_deviation(role, columns, num_layers_), split);
}

void ParameterBuilder::add_convolution(const std::string& name,
                                       std::int64_t rows,
                                       std::int64_t channels,
                                       std::int64_t kernel) {
  draw(name,
       {rows, channels, kernel},
       initial_deviation(ParameterRole::kLinear, channels * kernel, num_layers_),
       {});
}

void ParameterBuilder::add_vector(const std::string& name,
                                  std::int64_t size,
                                  double value,
                                  const ParameterSplit& split) {
  add(name,
      at::full(part_shape({size}, split, options_.tensor_parallel),
               value,
               at::TensorOptions(options_.device).dtype(options_.dtype)),
      split);
}

void ParameterBuilder::draw(const std::string& name,
                            const std::vector<std::int64_t>& shape,
                            double deviation,
                            const ParameterSplit& split) {
  const int degree = options_.tensor_parallel;
  if (options_.tensor_group == nullptr) {
    add(name, initial_weight(name, part_shape(shape, split, degree), deviation, options_), split);
    return;
  }
  const at::Tensor whole = initial_weight(name, shape, deviation, options_);
  const at::Tensor part = part_of(whole, split, options_.tensor_group->index, degree);
  add(name, degree > 1 && !split.whole() ? part.clone() : part, split);
}

void ParameterBuilder::add(const std::string& name,
                           at::Tensor tensor,
                           const ParameterSplit& split) {
  tensor.set_requires_grad(trainable_);
  parameters_.push_back({name, std::move(tensor), split});
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
