// AdamW on the parameters that one rank updates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Linear warm-up, then cosine to final_fraction; update counts from 0.
double learning_rate_at(const OptimizerConfig& config, std::int64_t update, std::int64_t updates);

// Decoupled weight decay on matrices only, not on vectors (norms, biases). Rates, warm-up and decay
// may differ between parts (OptimizerConfig::modules).
class AdamW {
 public:
  // Keeps `trained`, whose values and gradients step() reads and changes. `size`: elements of the
  // flat buffer that contains them.
  AdamW(std::vector<TrainedPiece> trained, std::int64_t size, const OptimizerConfig& config);

  // Update `update` of `updates`, from 0, from the gradients, at every part's learning rate.
  // Zero gradients are not skipped, so that momentum and decay do not depend on which rank
  // saw which sample.
  void step(std::int64_t update, std::int64_t updates);

  // Both moments, flat, at the positions of `trained`; in the order of kMomentSuffixes.
  // They are the optimizer's own tensors: writing to them changes it.
  // Shapes  [size] float32, 0 between parameters.
  [[nodiscard]] const std::array<at::Tensor, 2>& moments() const { return moments_; }
  // Number of updates in the moments; set it together with them.
  void set_updates(std::int64_t updates);
  [[nodiscard]] std::int64_t bytes() const;  // of both moments

 private:
  // Pieces with the same options.
  struct ParameterGroup {
    OptimizerConfig config;  // of their part
    double weight_decay = 0;
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> first_moments;
    std::vector<at::Tensor> second_moments;
    std::vector<at::Tensor> steps;
  };
  std::array<at::Tensor, 2> moments_;
  std::vector<ParameterGroup> groups_;
};

}  // namespace entrain::engine
