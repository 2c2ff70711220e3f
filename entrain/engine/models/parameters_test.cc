#include "entrain/engine/models/parameters.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

TEST(InitialWeight, DependsOnSeedAndNameAlone) {
  const StageOptions options = {.seed = 3};
  const at::Tensor values = initial_weight("a", {40, 50}, 0.5, options);
  EXPECT_TRUE(at::equal(values, initial_weight("a", {40, 50}, 0.5, options)));
  EXPECT_FALSE(at::equal(values, initial_weight("b", {40, 50}, 0.5, options)));
  EXPECT_FALSE(at::equal(values, initial_weight("a", {40, 50}, 0.5, {.seed = 4})));
  EXPECT_NEAR(values.std().item<double>(), 0.5, 0.03);
  EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.04);
}

TEST(InitialDeviation, ScalesByFanInAndDepth) {
  EXPECT_DOUBLE_EQ(initial_deviation(ParameterRole::kLinear, 64, 8), 0.125);
  EXPECT_DOUBLE_EQ(initial_deviation(ParameterRole::kResidualLinear, 64, 8), 0.125 / 4);
  EXPECT_DOUBLE_EQ(initial_deviation(ParameterRole::kEmbedding, 64, 8), 0.02);
}

TEST(InitialParameter, KeepsShapeRoleAndTrainability) {
  const StageOptions options = {.seed = 3, .dtype = at::kDouble};
  const std::vector<ParameterSpec> specs = {
      {"a.weight", {40, 64}},
      {"a.bias", {5}, ParameterRole::kBias},
      {"b.weight", {64, 40}, ParameterRole::kResidualLinear, {}, false},
      {"norm.weight", {3}, ParameterRole::kGain, {}, false}};
  std::vector<NamedParameter> parameters;
  for (const ParameterSpec& spec : specs) {
    parameters.push_back(initial_parameter(spec, options, 8));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parameters[i].name, specs[i].name);
    EXPECT_EQ(parameters[i].tensor.sizes(), at::IntArrayRef(specs[i].shape)) << specs[i].name;
    EXPECT_EQ(parameters[i].tensor.requires_grad(), i < 2) << specs[i].name;
    EXPECT_TRUE(parameters[i].tensor.is_leaf());
    EXPECT_EQ(parameters[i].tensor.scalar_type(), at::kDouble);
  }
  EXPECT_TRUE(
      at::equal(parameters[0].tensor, initial_weight("a.weight", {40, 64}, 0.125, options)));
  const double residual = initial_deviation(ParameterRole::kResidualLinear, 40, 8);
  EXPECT_TRUE(
      at::equal(parameters[2].tensor, initial_weight("b.weight", {64, 40}, residual, options)));
  EXPECT_TRUE(at::equal(parameters[1].tensor, at::zeros({5}, at::kDouble)));
  EXPECT_TRUE(at::equal(parameters[3].tensor, at::ones({3}, at::kDouble)));
}

// Kaiming's uniform values with a = √5 are within ±1/√in; B is zero, so that training begins at the
// base.
TEST(InitialParameter, DrawsAdaptersAsTheirReferenceDoes) {
  const auto value_of = [](const ParameterSpec& parameter) {
    return initial_parameter(parameter, {.seed = 3}, 8).tensor;
  };
  const at::Tensor a = value_of({"x.lora_A.weight", {8, 400}, ParameterRole::kLoraA});
  const at::Tensor b = value_of({"x.lora_B.weight", {64, 8}, ParameterRole::kLoraB});
  EXPECT_LE(a.abs().max().item<float>(), 0.05F);
  EXPECT_GT(a.abs().max().item<float>(), 0.0499F);
  EXPECT_NEAR(a.mean().item<double>(), 0.0, 2e-3);
  EXPECT_NEAR(a.std().item<double>(), 0.05 / std::sqrt(3.0), 1e-3);
  EXPECT_TRUE(at::equal(b, at::zeros({64, 8})));
}

TEST(CheckLayers, TakesNonEmptyRangesWithinTheModule) {
  EXPECT_NO_THROW(check_layers("vision", {0, 1}, 5));
  EXPECT_NO_THROW(check_layers("vision", {4, 5}, 5));
  for (const LayerRange range : std::vector<LayerRange>{{-1, 2}, {2, 2}, {3, 2}, {4, 6}}) {
    const std::string message =
        oracle::error_of<InvalidInput>([&] { check_layers("vision", range, 5); });
    EXPECT_NE(message.find(concat("stage of vision: layers [", range.begin, ", ", range.end, ")")),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("within [0, 5)"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace entrain::engine
