// Names, initial values and freezing of parameters. Used only by the stages.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The role of a parameter, which decides its initial values.
enum class ParameterRole : std::uint8_t {
  kLinear,          // [out, in] matrix
  kResidualLinear,  // matrix whose output is added to the residual stream
  kEmbedding,       // table of token vectors
};

// Standard deviation of initial values: 0.02 for embeddings; 1/sqrt(fan_in) for matrices, so that
// unit inputs give unit outputs. Matrices that write to the residual stream are divided further by
// sqrt(2 · num_layers), since that many outputs add up. Norm gains are 1, biases 0.
//
// Requires  fan_in >= 1; num_layers: transformer layers of the module, >= 1.
double initial_deviation(ParameterRole role, std::int64_t fan_in, int num_layers);

// How a layer's matrices are sharded (parameter_split.h): by output rows, or by input columns.
inline constexpr ParameterSplit kByOutputs{0};
inline constexpr ParameterSplit kByInputs{1};

// Collects a stage's parameters in layer order. Sizes are those of the whole parameter. With a
// tensor group, values are this rank's shard of the whole, so they do not depend on the sharding.
class ParameterBuilder {
 public:
  ParameterBuilder(const StageOptions& options, int num_layers)
      : options_(options), num_layers_(num_layers) {}

  // Whether parameters added from now on require gradients.
  void set_trainable(bool trainable) { trainable_ = trainable; }

  // [rows, columns] initialised by role; columns is the fan-in.
  void add_matrix(const std::string& name,
                  std::int64_t rows,
                  std::int64_t columns,
                  ParameterRole role = ParameterRole::kLinear,
                  const ParameterSplit& split = {});
  // [rows, channels, kernel], likewise; channels · kernel is the fan-in.
  void add_convolution(const std::string& name,
                       std::int64_t rows,
                       std::int64_t channels,
                       std::int64_t kernel);
  // [size] filled with `value`.
  void add_vector(const std::string& name,
                  std::int64_t size,
                  double value,
                  const ParameterSplit& split = {});

  std::vector<NamedParameter> take() { return std::move(parameters_); }

 private:
  void draw(const std::string& name,
            const std::vector<std::int64_t>& shape,
            double deviation,
            const ParameterSplit& split);
  void add(const std::string& name, at::Tensor tensor, const ParameterSplit& split);

  StageOptions options_;
  int num_layers_;
  bool trainable_ = true;
  std::vector<NamedParameter> parameters_;
};

// Throws  InvalidInput unless 0 <= begin < end <= num_layers.
void check_layers(const std::string& module, LayerRange layers, int num_layers);

}  // namespace entrain::engine
