#include "entrain/engine/pipeline/gradients.h"

#include <gtest/gtest.h>

#include "entrain/engine/pipeline/ranks.h"

namespace entrain::engine {
namespace {

NamedParameter parameter_of(const std::string& name, std::vector<std::int64_t> shape, bool train) {
  return {name, at::zeros(shape).set_requires_grad(train)};
}

TEST(LaneGradients, SumsOverRanksAndFillsMissingWithZeros) {
  ThreadCommGroup group(3);
  run_ranks(group, [&](int rank) {
    const std::vector<NamedParameter> parameters = {parameter_of("a", {2, 3}, true),
                                                    parameter_of("frozen", {4}, false),
                                                    parameter_of("b", {5}, true),
                                                    parameter_of("unused", {2}, true)};
    LaneGradients gradients(parameters);
    parameters[0].tensor.mutable_grad() = at::full({2, 3}, static_cast<float>(rank + 1));
    if (rank == 1) {
      parameters[2].tensor.mutable_grad() = at::arange(5, at::kFloat);
    }
    gradients.reduce(group.comm(rank), {0, 1, 2});
    EXPECT_TRUE(at::equal(parameters[0].tensor.grad(), at::full({2, 3}, 6.0F)));
    EXPECT_TRUE(at::equal(parameters[2].tensor.grad(), at::arange(5, at::kFloat)));
    EXPECT_TRUE(at::equal(parameters[3].tensor.grad(), at::zeros({2})));
    EXPECT_FALSE(parameters[1].tensor.grad().defined());
    gradients.clear();
    EXPECT_FALSE(parameters[0].tensor.grad().defined());
  });
}

TEST(LaneGradients, ClipsByTheNormOverAllLanesOfTheReplica) {
  // Two replicas of two lanes; the lanes hold 3 and 4, so the norm is 5.
  ThreadCommGroup group(4);
  run_ranks(group, [&](int rank) {
    const std::vector<int> replica = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const std::vector<NamedParameter> parameters = {parameter_of("a", {1}, true)};
    LaneGradients gradients(parameters);
    const float value = rank % 2 == 0 ? 3.0F : 4.0F;
    parameters[0].tensor.mutable_grad() = at::full({1}, value);
    EXPECT_DOUBLE_EQ(gradients.clip(group.comm(rank), replica, 0), 5);
    EXPECT_DOUBLE_EQ(gradients.clip(group.comm(rank), replica, 6), 5);
    EXPECT_EQ(parameters[0].tensor.grad().item<float>(), value);
    EXPECT_DOUBLE_EQ(gradients.clip(group.comm(rank), replica, 2.5), 5);
    EXPECT_EQ(parameters[0].tensor.grad().item<float>(), value / 2);
  });
}

TEST(LaneGradients, LanesWithoutTrainableParametersTakePart) {
  ThreadCommGroup group(2);
  run_ranks(group, [&](int rank) {
    const std::vector<NamedParameter> parameters = {parameter_of("a", {1}, rank == 1)};
    LaneGradients gradients(parameters);
    if (rank == 1) {
      parameters[0].tensor.mutable_grad() = at::full({1}, -2.0F);
    }
    EXPECT_DOUBLE_EQ(gradients.clip(group.comm(rank), {0, 1}, 0), 2);
    LaneGradients().reduce(group.comm(rank), {0, 1});
  });
}

}  // namespace
}  // namespace entrain::engine
