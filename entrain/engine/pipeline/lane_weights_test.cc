#include "entrain/engine/pipeline/lane_weights.h"

#include <gtest/gtest.h>

#include "entrain/engine/pipeline/ranks.h"

namespace entrain::engine {
namespace {

std::vector<NamedParameter> three_parameters() {
  const auto weight = [](const std::string& name, std::vector<std::int64_t> shape, bool trains) {
    return NamedParameter{name,
                          initial_weight(name, std::move(shape), 1, {}).set_requires_grad(trains)};
  };
  return {weight("a", {4, 9}, true), weight("frozen", {6}, false), weight("b", {40}, true)};
}

// What a rank's optimizer would do to its masters.
void multiply(LaneWeights& weights, int shard, double factor) {
  for (const ShardPiece& piece : weights.layout().pieces(shard)) {
    weights.master(piece).mul_(factor);
  }
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

TEST(LaneWeights, InFloat32AreTheirOwnMasters) {
  const std::vector<NamedParameter> given = three_parameters();
  const std::vector<NamedParameter> expected = three_parameters();
  ThreadCommGroup group(1);
  LaneWeights weights(given, at::kFloat);
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_TRUE(same(given[i].tensor.detach(), expected[i].tensor.detach()));
  }
  EXPECT_EQ(weights.master_bytes(), 0);
  EXPECT_EQ(weights.parameter_bytes(), 4 * (36 + 6 + 40));
  multiply(weights, 0, 2);
  weights.round();
  EXPECT_TRUE(same(given[0].tensor.detach(), expected[0].tensor.detach() * 2));
  EXPECT_TRUE(same(given[1].tensor, expected[1].tensor));
  EXPECT_TRUE(same(weights.full(group.comm(0), {0})[2].tensor, expected[2].tensor.detach() * 2));
}

TEST(LaneWeights, InBfloat16ComputeWithRoundedMasters) {
  const std::vector<NamedParameter> given = three_parameters();
  const std::vector<NamedParameter> expected = three_parameters();
  ThreadCommGroup group(1);
  LaneWeights weights(given, at::kBFloat16);
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_TRUE(same(given[i].tensor.detach(), expected[i].tensor.detach().to(at::kBFloat16)));
    EXPECT_EQ(given[i].tensor.requires_grad(), i != 1);
  }
  EXPECT_EQ(weights.parameter_bytes(), 2 * (36 + 6 + 40));
  EXPECT_EQ(weights.master_bytes(), 4 * weights.layout().size());
  std::vector<NamedParameter> full = weights.full(group.comm(0), {0});
  EXPECT_TRUE(same(full[0].tensor, expected[0].tensor.detach()));
  EXPECT_TRUE(same(full[1].tensor, expected[1].tensor.to(at::kBFloat16).to(at::kFloat)));
  // Far below a bfloat16's last bit, a hundred times: the masters gather it.
  for (int update = 0; update < 100; ++update) {
    multiply(weights, 0, 1 + 1e-4);
    weights.round();
  }
  full = weights.full(group.comm(0), {0});
  EXPECT_TRUE(at::allclose(full[2].tensor, expected[2].tensor.detach() * 1.01005, 1e-4));
  EXPECT_TRUE(same(given[2].tensor.detach(), full[2].tensor.to(at::kBFloat16)));
}

// Every rank changes its shard alone, and all compute with all of them afterwards.
TEST(LaneWeights, ShardsComeTogetherAgain) {
  constexpr int kRanks = 3;
  const std::vector<int> ranks = {0, 1, 2};
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
    ThreadCommGroup group(kRanks);
    run_ranks(group, [&](int rank) {
      const std::vector<NamedParameter> given = three_parameters();
      const std::vector<NamedParameter> expected = three_parameters();
      LaneWeights weights(given, precision, kRanks, rank);
      multiply(weights, rank, 2);
      weights.round();
      weights.gather(group.comm(rank), ranks);
      const std::vector<NamedParameter> full = weights.full(group.comm(rank), ranks);
      for (const std::size_t i : {0U, 2U}) {
        EXPECT_TRUE(same(given[i].tensor.detach(), (expected[i].tensor * 2).to(precision)));
        EXPECT_TRUE(same(full[i].tensor, expected[i].tensor.detach() * 2));
      }
      const at::Tensor own =
          at::full({weights.layout().shard_size()}, static_cast<float>(rank + 1));
      const at::Tensor whole = weights.whole(own, group.comm(rank), ranks);
      ASSERT_EQ(whole.numel(), weights.layout().size());
      EXPECT_EQ(whole[whole.numel() - 1].item<float>(), kRanks);
      at::Tensor back = at::zeros_like(own);
      weights.take_shard(whole, back);
      EXPECT_TRUE(at::equal(back, own));
    });
  }
}

TEST(LaneWeights, TakeValuesOver) {
  for (const int num_shards : {1, 2}) {
    const std::vector<NamedParameter> given = three_parameters();
    LaneWeights weights(given, at::kBFloat16, num_shards, num_shards - 1);
    std::vector<NamedParameter> values;
    for (const NamedParameter& parameter : three_parameters()) {
      values.push_back({parameter.name, parameter.tensor.detach() * 3 + 1});
    }
    weights.set(values);
    for (std::size_t i = 0; i < given.size(); ++i) {
      EXPECT_TRUE(same(given[i].tensor.detach(), values[i].tensor.to(at::kBFloat16)));
      EXPECT_EQ(given[i].tensor.requires_grad(), i != 1);
    }
    const ShardPiece last = weights.layout().pieces(num_shards - 1).back();
    EXPECT_EQ(last.entry->name, "b");
    EXPECT_TRUE(same(weights.master(last), values[2].tensor.narrow(0, 40 - last.size, last.size)));
  }
}

}  // namespace
}  // namespace entrain::engine
