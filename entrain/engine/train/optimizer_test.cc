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

// Two updates, then one more: by the same object, and by one that took over its state.
TEST(AdamW, GoesOnFromItsMomentsAndUpdates) {
  const auto run = [](bool handed_over) {
    NamedParameter weight{"w", at::arange(6, at::kFloat).view({2, 3}).set_requires_grad(true)};
    NamedParameter bias{"b", at::ones({4}).set_requires_grad(true)};
    const std::vector<NamedParameter> parameters = {weight, bias, {"frozen", at::ones({2})}};
    const auto update = [&](AdamW& optimizer, double gradient) {
      for (const NamedParameter* parameter : {&weight, &bias}) {
        parameter->tensor.mutable_grad() = at::full_like(parameter->tensor.detach(), gradient);
      }
      optimizer.step(0.01);
    };
    AdamW first(parameters, test_config());
    update(first, 0.5);
    update(first, -2.0);
    AdamW second(parameters, test_config());
    if (handed_over) {
      const std::vector<NamedParameter> from = first.moments();
      const std::vector<NamedParameter> to = second.moments();
      EXPECT_EQ(from.size(), 4U);
      for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].name, to[i].name);
        to[i].tensor.copy_(from[i].tensor);
      }
      second.set_updates(2);
    }
    update(handed_over ? second : first, 0.25);
    return at::cat({weight.tensor.detach().flatten(), bias.tensor.detach()});
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(AdamW, NamesItsMomentsAfterTheirParameters) {
  const at::Tensor weight = at::ones({2, 2}).set_requires_grad(true);
  const AdamW optimizer({{"a.weight", weight}}, test_config());
  EXPECT_EQ(optimizer.moments().at(0).name, "a.weight.first_moment");
  EXPECT_EQ(optimizer.moments().at(1).name, "a.weight.second_moment");
}

TEST(AdamW, LeavesFrozenParametersAlone) {
  const at::Tensor frozen = at::ones({2, 2});
  AdamW optimizer({{"frozen", frozen}}, test_config());
  optimizer.step(0.01);
  EXPECT_TRUE(at::equal(frozen, at::ones({2, 2})));
}

}  // namespace
}  // namespace entrain::engine
