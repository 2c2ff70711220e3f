#include "entrain/engine/pipeline/feature_exchange.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

// One encoder group in slot 0 that serves LLM slots 0 (samples 0 and 1, 2 + 1 rows) and 2 (sample
// 2, 3 rows), and one in slot 1 that serves LLM slot 2 (sample 2, 4 rows).
class FeatureExchangeTest : public testing::Test {
 protected:
  FeatureExchangeTest() {
    model_.llm.hidden = 2;
    model_.encoders.resize(1);
    program_.num_stages = {2, 1};
    ReplicaProgram& replica = program_.replicas.emplace_back();
    replica.groups.resize(2);
    Group first;
    first.items = {{0, 0}, {1, 0}, {2, 0}};
    first.llm_slots = {0, 2};
    first.part_sizes = {2, 1};
    first.takes_backward = {1, 1};
    Group second;
    second.items = {{2, 1}};
    second.llm_slots = {2};
    second.part_sizes = {1};
    second.takes_backward = {1, 1};
    replica.groups[0] = {{first}, {second}, {}};
    replica.groups[1].resize(3);
    const auto segment = [](std::int64_t rows) {
      SegmentWork work;
      work.llm_tokens = rows;
      return work;
    };
    costs_.work.own().resize(3);
    costs_.work[0].segments = {{segment(2)}};
    costs_.work[1].segments = {{segment(1)}};
    costs_.work[2].segments = {{segment(3), segment(4)}};
  }

  void freeze() {
    for (auto& slot : program_.replicas[0].groups[0]) {
      for (Group& group : slot) {
        group.takes_backward = {0, 0};
      }
    }
  }

  FeatureExchange make() { return FeatureExchange({model_, program_, costs_}, 0); }

  at::Tensor features_of(const UnitKey& unit) {
    ++taken_[unit];
    return at::arange(2 * (unit.slot == 0 ? 6 : 4), at::kFloat).view({-1, 2});
  }
  FeatureExchange::Take taker() {
    return [this](const UnitKey& unit) { return features_of(unit); };
  }
  FeatureExchange::Give giver() {
    return [this](const UnitKey& unit, at::Tensor gradient) { given_[unit] = std::move(gradient); };
  }

  ModelSpec model_;
  Program program_;
  StepCosts costs_;
  std::map<UnitKey, int> taken_;
  std::map<UnitKey, at::Tensor> given_;
};

const UnitKey kFirst{0, 1, 0, 0};
const UnitKey kSecond{0, 1, 1, 0};

TEST_F(FeatureExchangeTest, CutsAGroupIntoTheSlotsItServes) {
  FeatureExchange exchange = make();
  const auto slot0 = exchange.take({0, 0}, true, taker());
  ASSERT_EQ(slot0.size(), 1U);
  EXPECT_EQ(slot0[0].unit, kFirst);
  EXPECT_TRUE(at::equal(slot0[0].leaf.detach(), at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_TRUE(slot0[0].leaf.requires_grad());
  const auto slot2 = exchange.take({2, 0}, true, taker());
  ASSERT_EQ(slot2.size(), 2U);
  EXPECT_TRUE(at::equal(slot2[0].leaf.detach(), at::arange(6, 12, at::kFloat).view({3, 2})));
  EXPECT_EQ(slot2[1].unit, kSecond);
  EXPECT_EQ(slot2[1].leaf.size(0), 4);
  EXPECT_TRUE(exchange.take({1, 0}, true, taker()).empty());
  EXPECT_EQ(taken_, (std::map<UnitKey, int>{{kFirst, 1}, {kSecond, 1}}));
}

TEST_F(FeatureExchangeTest, GivesAGroupsGradientAfterItsLastSlotInWhateverOrder) {
  FeatureExchange exchange = make();
  const auto slot0 = exchange.take({0, 0}, true, taker());
  const auto slot2 = exchange.take({2, 0}, true, taker());
  (slot2[0].leaf * 2).sum().backward();
  exchange.give({2, 0}, giver());
  // Slot 2 completes the second group; its leaf got no gradient.
  ASSERT_EQ(given_.size(), 1U);
  EXPECT_TRUE(at::equal(given_.at(kSecond), at::zeros({4, 2})));
  (slot0[0].leaf * 3).sum().backward();
  exchange.give({0, 0}, giver());
  EXPECT_TRUE(
      at::equal(given_.at(kFirst), at::cat({at::full({3, 2}, 3.0F), at::full({3, 2}, 2.0F)})));
  EXPECT_TRUE(exchange.empty());
}

TEST_F(FeatureExchangeTest, KeepsNothingOfFrozenGroupsOrWithoutGradients) {
  FeatureExchange evaluation = make();
  EXPECT_FALSE(evaluation.take({0, 0}, false, taker())[0].leaf.requires_grad());
  EXPECT_FALSE(evaluation.empty());
  evaluation.take({2, 0}, false, taker());
  EXPECT_TRUE(evaluation.empty());
  freeze();
  FeatureExchange frozen = make();
  EXPECT_FALSE(frozen.take({0, 0}, true, taker())[0].leaf.requires_grad());
  frozen.give({0, 0}, giver());
  frozen.take({2, 0}, true, taker());
  frozen.give({2, 0}, giver());
  EXPECT_TRUE(frozen.empty());
  EXPECT_TRUE(given_.empty());
}

TEST_F(FeatureExchangeTest, RefusesABackwardBeforeItsForward) {
  FeatureExchange exchange = make();
  EXPECT_THROW(exchange.give({0, 0}, giver()), InternalError);
}

// Sample 0 as chunks in LLM slots 0, 1 and 2, beside sample 1 in the first; slot 2 keeps sample 2
// in a group of its own.
class ChunkedFeaturesTest : public FeatureExchangeTest {
 protected:
  ChunkedFeaturesTest() {
    auto& llm = program_.replicas[0].groups[1];
    const auto group = [](Slot items) {
      Group result;
      result.items = std::move(items);
      return result;
    };
    llm[0] = {group({{0, -1, 0, 2}, {1}})};
    llm[1] = {group({{0, -1, 2, 4}})};
    llm[2] = {group({{2}}), group({{0, -1, 4, 9}})};
  }
};

TEST_F(ChunkedFeaturesTest, LaterChunksReadTheSameLeaf) {
  FeatureExchange exchange = make();
  const auto first = exchange.take({0, 0}, true, taker());
  const auto second = exchange.take({1, 0}, true, taker());
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].unit, kFirst);
  EXPECT_EQ(second[0].items.size(), 2U);
  const auto whole = exchange.take({2, 0}, true, taker());
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[0].leaf.size(0), 3);
  const auto third = exchange.take({2, 1}, true, taker());
  ASSERT_EQ(third.size(), 1U);
  (third[0].leaf * 2).sum().backward();
  exchange.give({2, 1}, giver());
  exchange.give({2, 0}, giver());
  (second[0].leaf * 3).sum().backward();
  exchange.give({1, 0}, giver());
  EXPECT_EQ(given_.count(kFirst), 0U) << "the chunk that took the features has not run backward";
  (first[0].leaf * 4).sum().backward();
  exchange.give({0, 0}, giver());
  EXPECT_TRUE(at::equal(given_.at(kFirst), at::cat({at::full({3, 2}, 9.0F), at::zeros({3, 2})})));
  EXPECT_EQ(taken_.at(kFirst), 1);
  EXPECT_TRUE(exchange.empty());
}

TEST_F(ChunkedFeaturesTest, WithoutGradientsFeaturesStayUntilTheLastChunk) {
  FeatureExchange exchange = make();
  exchange.take({0, 0}, false, taker());
  exchange.take({1, 0}, false, taker());
  exchange.take({2, 0}, false, taker());
  EXPECT_FALSE(exchange.empty());
  const auto last = exchange.take({2, 1}, false, taker());
  ASSERT_EQ(last.size(), 1U);
  EXPECT_TRUE(at::equal(last[0].leaf, at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_TRUE(exchange.empty());
}

TEST_F(ChunkedFeaturesTest, RefusesAChunkAheadOfItsEarlierOnes) {
  FeatureExchange exchange = make();
  EXPECT_THROW(exchange.take({1, 0}, true, taker()), InternalError);
}

}  // namespace
}  // namespace entrain::engine
