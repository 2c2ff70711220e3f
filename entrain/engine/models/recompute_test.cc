#include "entrain/engine/models/recompute.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

struct Case {
  explicit Case(bool weight_trains = true, bool input_trains = true) {
    at::manual_seed(5);
    input = at::randn({6, 4}).set_requires_grad(input_trains);
    parameters.resize(1);
    parameters[0].tensor = at::randn({4, 4}).set_requires_grad(weight_trains);
  }
  // Counts its runs.
  [[nodiscard]] LayerForward layer() {
    return [this](const at::Tensor& x) {
      ++runs;
      recorded = recorded || (at::GradMode::is_enabled() && x.requires_grad());
      return at::tanh(at::linear(x, parameters[0].tensor)) * x;
    };
  }
  at::Tensor input;
  std::vector<NamedParameter> parameters;
  int runs = 0;
  bool recorded = false;
};

TEST(RunRecomputed, GivesTheGradientsOfTheLayerItself) {
  for (const bool weight_trains : {true, false}) {
    for (const bool input_trains : {true, false}) {
      if (!weight_trains && !input_trains) {
        continue;
      }
      Case plain(weight_trains, input_trains);
      Case again(weight_trains, input_trains);
      const at::Tensor expected = plain.layer()(plain.input);
      const at::Tensor actual = run_recomputed(again.input, again.parameters, again.layer());
      EXPECT_EQ(again.runs, 1);
      EXPECT_TRUE(at::equal(actual, expected));
      expected.square().sum().backward();
      actual.square().sum().backward();
      EXPECT_EQ(again.runs, 2);
      EXPECT_EQ(again.input.grad().defined(), input_trains);
      EXPECT_EQ(again.parameters[0].tensor.grad().defined(), weight_trains);
      if (input_trains) {
        EXPECT_TRUE(at::equal(again.input.grad(), plain.input.grad()));
      }
      if (weight_trains) {
        EXPECT_TRUE(
            at::equal(again.parameters[0].tensor.grad(), plain.parameters[0].tensor.grad()));
      }
    }
  }
}

TEST(RunRecomputed, RecordsNothingOfTheFirstForward) {
  Case of;
  const at::Tensor output = run_recomputed(of.input, of.parameters, of.layer());
  EXPECT_FALSE(of.recorded);
  output.sum().backward();
  EXPECT_TRUE(of.recorded);
}

TEST(RunRecomputed, RunsOnceWhereNothingTakesGradients) {
  Case frozen(false, false);
  EXPECT_FALSE(run_recomputed(frozen.input, frozen.parameters, frozen.layer()).requires_grad());
  Case unrecorded;
  const at::NoGradGuard guard;
  EXPECT_FALSE(
      run_recomputed(unrecorded.input, unrecorded.parameters, unrecorded.layer()).requires_grad());
  EXPECT_EQ(frozen.runs + unrecorded.runs, 2);
}

}  // namespace
}  // namespace entrain::engine
