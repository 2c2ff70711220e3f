#include "entrain/engine/train/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain::engine {
namespace {

OptimizerConfig test_config() {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  return config;
}

// The update as the AdamW paper writes it, in double, one element at a time.
struct SlowAdamW {
  double value;
  double first = 0;
  double second = 0;
  int count = 0;

  void step(double gradient, double rate, double decay, const OptimizerConfig& config) {
    ++count;
    value -= rate * decay * value;
    first = config.beta1 * first + (1 - config.beta1) * gradient;
    second = config.beta2 * second + (1 - config.beta2) * gradient * gradient;
    const double first_hat = first / (1 - std::pow(config.beta1, count));
    const double second_hat = second / (1 - std::pow(config.beta2, count));
    value -= rate * first_hat / (std::sqrt(second_hat) + config.epsilon);
  }
};

TEST(AdamW, MatchesTheFormulaAndDecaysMatricesOnly) {
  Rng rng(5);
  NamedParameter matrix{"m", at::empty({3, 4})};
  NamedParameter vector{"v", at::empty({5})};
  for (NamedParameter* parameter : {&matrix, &vector}) {
    for (std::int64_t i = 0; i < parameter->tensor.numel(); ++i) {
      parameter->tensor.data_ptr<float>()[i] = static_cast<float>(rng.normal());
    }
  }
  std::vector<SlowAdamW> slow;
  for (const NamedParameter* parameter : {&matrix, &vector}) {
    for (std::int64_t i = 0; i < parameter->tensor.numel(); ++i) {
      slow.push_back({parameter->tensor.data_ptr<float>()[i]});
    }
    parameter->tensor.set_requires_grad(true);
  }
  const OptimizerConfig config = test_config();
  AdamW optimizer({matrix, vector}, config);
  for (int step = 0; step < 5; ++step) {
    std::size_t element = 0;
    for (NamedParameter* parameter : {&matrix, &vector}) {
      at::Tensor gradient = at::empty(parameter->tensor.sizes());
      for (std::int64_t i = 0; i < gradient.numel(); ++i) {
        const auto value = static_cast<float>(rng.normal());
        gradient.data_ptr<float>()[i] = value;
        slow[element++].step(value, 0.01, parameter == &matrix ? config.weight_decay : 0.0, config);
      }
      parameter->tensor.mutable_grad() = gradient;
    }
    optimizer.step(0.01);
  }
  std::size_t element = 0;
  for (const NamedParameter* parameter : {&matrix, &vector}) {
    for (std::int64_t i = 0; i < parameter->tensor.numel(); ++i) {
      EXPECT_NEAR(parameter->tensor.data_ptr<float>()[i], slow[element++].value, 1e-5);
    }
  }
}

TEST(AdamW, TreatsAMissingGradientAsZero) {
  const at::Tensor with = at::ones({2, 2}).set_requires_grad(true);
  const at::Tensor without = at::ones({2, 2}).set_requires_grad(true);
  with.mutable_grad() = at::zeros({2, 2});
  AdamW optimizer({{"with", with}, {"without", without}}, test_config());
  optimizer.step(0.01);
  EXPECT_TRUE(at::equal(with.detach(), without.detach()));
  EXPECT_LT(without.detach().max().item<float>(), 1.0F);
}

TEST(AdamW, LeavesFrozenParametersAlone) {
  const at::Tensor frozen = at::ones({2, 2});
  AdamW optimizer({{"frozen", frozen}}, test_config());
  optimizer.step(0.01);
  EXPECT_TRUE(at::equal(frozen, at::ones({2, 2})));
}

}  // namespace
}  // namespace entrain::engine
