// Names, initial values and freezing of parameters. Used only by the stages.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// Standard deviation of initial values: 0.02 for embeddings; 1/sqrt(fan_in) for matrices, so that
// unit inputs give unit outputs. Matrices that write to the residual stream are divided further by
// sqrt(2 · num_layers), since that many outputs add up. Gains are 1, biases 0. Of an adapter A is
// uniform within ±1/sqrt(fan_in) and B 0, as in the reference implementation of LoRA.
//
// Requires  fan_in >= 1; num_layers: transformer layers of the module, >= 1.
double initial_deviation(ParameterRole role, std::int64_t fan_in, int num_layers);

// Collects a stage's parameters in layer order. Sizes are those of the whole parameter. With a
// tensor group, values are this rank's shard of the whole, so they do not depend on the sharding.
class ParameterBuilder {
 public:
  ParameterBuilder(const StageOptions& options, int num_layers)
      : options_(options), num_layers_(num_layers) {}

  // Requires gradients if the parameter is trainable. The fan-in of a matrix or convolution is the
  // product of all its axes but the first.
  void add(const ParameterSpec& parameter);

  [[nodiscard]] std::size_t size() const { return parameters_.size(); }
  std::vector<NamedParameter> take() { return std::move(parameters_); }

 private:
  [[nodiscard]] at::Tensor initial(const ParameterSpec& parameter) const;

  StageOptions options_;
  int num_layers_;
  std::vector<NamedParameter> parameters_;
};

// Throws  InvalidInput unless 0 <= begin < end <= num_layers.
void check_layers(const std::string& module, LayerRange layers, int num_layers);

}  // namespace entrain::engine
