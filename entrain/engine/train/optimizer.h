// AdamW on one rank's parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/engine/models/stages.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Decoupled weight decay on matrices; vectors (norms, biases) take none. State lives beside its
// parameter.
class AdamW {
 public:
  // Takes the trainable ones of `parameters`.
  AdamW(const std::vector<NamedParameter>& parameters, const OptimizerConfig& config);

  // One update from the parameters' gradients. A missing gradient counts as zero, so that momentum
  // and decay do not depend on which rank saw which sample.
  void step(double learning_rate);

  // Both moments of every trained parameter, named as a checkpoint names them. They are the
  // optimizer's own tensors: written to, they change it.
  [[nodiscard]] std::vector<NamedParameter> moments() const;
  // How many updates the moments have seen; to be set with them.
  void set_updates(std::int64_t updates);

 private:
  struct ParameterGroup {
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> first_moments;
    std::vector<at::Tensor> second_moments;
    std::vector<at::Tensor> steps;
    double weight_decay = 0;
  };
  OptimizerConfig config_;
  std::vector<ParameterGroup> groups_;
};

}  // namespace entrain::engine
