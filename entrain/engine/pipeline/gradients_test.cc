#include "entrain/engine/pipeline/gradients.h"

#include <gtest/gtest.h>

#include "entrain/engine/pipeline/ranks.h"

namespace entrain::engine {
namespace {

NamedParameter parameter_of(const std::string& name, std::vector<std::int64_t> shape, bool train) {
  return {name, at::zeros(shape).set_requires_grad(train)};
}

TEST(LaneGradients, SumsOverRanksFromZeros) {
  ThreadCommGroup group(3);
  run_ranks(group, [&](int rank) {
    const std::vector<NamedParameter> parameters = {parameter_of("a", {2, 3}, true),
                                                    parameter_of("frozen", {4}, false),
                                                    parameter_of("b", {5}, true),
                                                    parameter_of("unused", {2}, true)};
    LaneGradients gradients(parameters);
    parameters[0].tensor.grad().fill_(rank + 1);
    if (rank == 1) {
      parameters[2].tensor.grad().copy_(at::arange(5, at::kFloat));
    }
    gradients.reduce(group.comm(rank), {0, 1, 2});
    EXPECT_TRUE(at::equal(parameters[0].tensor.grad(), at::full({2, 3}, 6.0F)));
    EXPECT_TRUE(at::equal(parameters[2].tensor.grad(), at::arange(5, at::kFloat)));
    EXPECT_TRUE(at::equal(parameters[3].tensor.grad(), at::zeros({2})));
    EXPECT_FALSE(parameters[1].tensor.grad().defined());
    gradients.clear();
    EXPECT_TRUE(at::equal(parameters[0].tensor.grad(), at::zeros({2, 3})));
  });
}

TEST(LaneGradients, TakeWhatBackwardPassesAdd) {
  const at::Tensor weight = at::ones({3}).set_requires_grad(true);
  const LaneGradients gradients({{"w", weight}});
  const at::Tensor before = weight.grad();
  for (int pass = 0; pass < 3; ++pass) {
    (weight * at::arange(3, at::kFloat)).sum().backward();
  }
  EXPECT_TRUE(weight.grad().is_same(before));
  EXPECT_TRUE(at::equal(gradients.buffer().narrow(0, 0, 3), 3 * at::arange(3, at::kFloat)));
}

// 1 + 4096 times 1/4096: in bfloat16 every one of them is lost.
TEST(LaneGradients, AreAddedUpInFloat32UnderBfloat16Weights) {
  const at::Tensor weight = at::ones({2}, at::kBFloat16).set_requires_grad(true);
  const LaneGradients gradients({{"w", weight}});
  constexpr int kPasses = 4096;
  weight.sum().backward();
  for (int pass = 0; pass < kPasses; ++pass) {
    (weight / kPasses).sum().backward();
  }
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({2}, 2.0F)));
}

// Bit for bit what the sum over all shards would be, each on its own rank.
TEST(LaneGradients, ShardsHoldTheSumsOfOneBuffer) {
  constexpr int kRanks = 3;
  ThreadCommGroup group(kRanks);
  run_ranks(group, [&](int rank) {
    const auto make = [&] {
      return std::vector<NamedParameter>{parameter_of("a", {7, 11}, true),
                                         parameter_of("b", {50}, true)};
    };
    const std::vector<NamedParameter> whole = make();
    const std::vector<NamedParameter> sharded = make();
    LaneGradients expected(whole);
    LaneGradients gradients(sharded, kRanks, rank);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const at::Tensor own = initial_weight(
          whole[i].name, whole[i].tensor.sizes().vec(), 1, {.seed = static_cast<unsigned>(rank)});
      whole[i].tensor.grad().copy_(own);
      sharded[i].tensor.grad().copy_(own);
    }
    const std::vector<int> ranks = {0, 1, 2};
    expected.reduce(group.comm(rank), ranks);
    gradients.reduce(group.comm(rank), ranks);
    const auto expect_same = [&] {
      const std::vector<NamedParameter> views = expected.layout().views(expected.buffer());
      for (const ShardPiece& piece : gradients.layout().pieces(rank)) {
        const std::size_t entry = piece.entry->name == "a" ? 0 : 1;
        EXPECT_TRUE(at::equal(
            gradients.buffer().narrow(0, piece.place, piece.size),
            views[entry].tensor.flatten().narrow(0, piece.place - piece.entry->begin, piece.size)));
      }
    };
    expect_same();
    const double norm = expected.clip(group.comm(rank), {rank}, 1);
    EXPECT_NEAR(gradients.clip(group.comm(rank), ranks, 1), norm, 1e-12 * norm);
    EXPECT_GT(norm, 1);
    expect_same();
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
    parameters[0].tensor.grad().fill_(value);
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
      parameters[0].tensor.grad().fill_(-2.0F);
    }
    EXPECT_DOUBLE_EQ(gradients.clip(group.comm(rank), {0, 1}, 0), 2);
    LaneGradients({}).reduce(group.comm(rank), {0, 1});
  });
}

}  // namespace
}  // namespace entrain::engine
