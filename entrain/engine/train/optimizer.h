// AdamW on what one rank trains.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Decoupled weight decay on matrices; vectors (norms, biases) take none.
class AdamW {
 public:
  // Keeps `trained`, whose values and gradients step() reads and changes. `size`: elements of the
  // flat buffer that they lie in.
  AdamW(std::vector<TrainedPiece> trained, std::int64_t size, const OptimizerConfig& config);

  // One update from the gradients. Those of zero count as others do, so that momentum and decay do
  // not depend on which rank saw which sample.
  void step(double learning_rate);

  // Both moments, flat, where their elements of `trained` lie; in the order of kMomentSuffixes.
  // They are the optimizer's own tensors: written to, they change it.
  // Shapes  [size] float32, 0 between parameters.
  [[nodiscard]] const std::array<at::Tensor, 2>& moments() const { return moments_; }
  // How many updates the moments have seen; to be set with them.
  void set_updates(std::int64_t updates);
  [[nodiscard]] std::int64_t bytes() const;  // of both moments

 private:
  // Pieces that are updated alike.
  struct ParameterGroup {
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> first_moments;
    std::vector<at::Tensor> second_moments;
    std::vector<at::Tensor> steps;
    double weight_decay = 0;
  };
  OptimizerConfig config_;
  std::array<at::Tensor, 2> moments_;
  std::vector<ParameterGroup> groups_;
};

}  // namespace entrain::engine
