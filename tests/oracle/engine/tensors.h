// Tensors, gradients and differences for the tests of layers and stages.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "entrain/engine/models/stages.h"

namespace entrain::oracle {

// Standard normal values that depend on the name alone.
inline at::Tensor random_tensor(std::vector<std::int64_t> shape,
                                const std::string& name,
                                at::ScalarType dtype = at::kDouble) {
  return engine::initial_weight(name, std::move(shape), 1.0, {.seed = 5, .dtype = dtype});
}

inline at::Tensor random_floats(std::vector<std::int64_t> shape, const std::string& name) {
  return random_tensor(std::move(shape), name, at::kFloat);
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// By name; undefined where a parameter has none.
inline std::map<std::string, at::Tensor> gradients_of(
    const std::vector<engine::NamedParameter>& parameters) {
  std::map<std::string, at::Tensor> gradients;
  for (const engine::NamedParameter& parameter : parameters) {
    gradients[parameter.name] = parameter.tensor.grad();
  }
  return gradients;
}

// Of two stages that follow each other, against those of one stage with the layers of both.
inline void expect_gradients(const std::vector<engine::NamedParameter>& first,
                             const std::vector<engine::NamedParameter>& second,
                             const std::map<std::string, at::Tensor>& expected) {
  auto gradients = gradients_of(first);
  gradients.merge(gradients_of(second));
  ASSERT_EQ(gradients.size(), expected.size());
  for (const auto& [name, gradient] : expected) {
    EXPECT_TRUE(at::equal(gradients.at(name), gradient)) << name;
  }
}

// Largest difference between autograd's gradient of Σ f(x)·weights and central differences.
inline double gradient_error(const std::function<at::Tensor(const at::Tensor&)>& function,
                             const at::Tensor& point) {
  const at::Tensor weights = random_tensor(function(point).sizes().vec(), "difference weights");
  const at::Tensor leaf = point.clone().set_requires_grad(true);
  (function(leaf) * weights).sum().backward();
  constexpr double kStep = 1e-6;
  at::Tensor numeric = at::empty_like(point);
  for (std::int64_t i = 0; i < point.numel(); ++i) {
    at::Tensor high = point.clone();
    at::Tensor low = point.clone();
    high.view(-1)[i] += kStep;
    low.view(-1)[i] -= kStep;
    numeric.view(-1)[i] = ((function(high) - function(low)) * weights).sum() / (2 * kStep);
  }
  return largest_difference(leaf.grad(), numeric);
}

}  // namespace entrain::oracle
