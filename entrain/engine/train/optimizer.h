// AdamW on one rank's parameters.
#pragma once

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

 private:
  struct ParameterGroup {
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
