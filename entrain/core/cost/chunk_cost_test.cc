#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// One LLM stage, one sample of 10 tokens, the last 3 with loss. Forward: 2 ns a pair, 10 a token,
// 100 a target token; nothing else has a cost.
StepCosts ten_tokens() {
  StepCosts costs;
  costs.num_samples = 1;
  costs.work.own().resize(1);
  costs.work[0].llm_tokens = 10;
  costs.work[0].llm_attention_pairs = 50;
  costs.work[0].target_tokens = 3;
  costs.modules.resize(1);
  costs.modules[0].first_unit = {0, 1};
  costs.modules[0].tokens = {10};
  StageCosts& stage = costs.modules[0].stages.emplace_back();
  stage.units.own().resize(1);
  stage.units[0].time.forward = nanoseconds{2 * 50 + 10 * 10 + 100 * 3};
  stage.chunk_weights.forward = {2, 10, 100};
  stage.key_value_bytes_per_token = 7;
  return costs;
}

WorkItem chunk(std::int64_t begin, std::int64_t end) {
  return {.sample = 0, .token_begin = begin, .token_end = end};
}

std::int64_t forward_ns(const StepCosts& costs, std::int64_t begin, std::int64_t end) {
  return unit_cost(costs, 0, 0, chunk(begin, end)).time.forward.count();
}

TEST(ChunkCost, CountsPairsTokensAndTargetsOfTheRange) {
  const StepCosts costs = ten_tokens();
  EXPECT_EQ(forward_ns(costs, 0, 4), 2 * 8 + 10 * 4);
  EXPECT_EQ(forward_ns(costs, 4, 8), 2 * (32 - 8) + 10 * 4 + 100 * 1);
  EXPECT_EQ(forward_ns(costs, 8, 10), 2 * (50 - 32) + 10 * 2 + 100 * 2);
}

TEST(ChunkCost, IsTheUnitsOwnForAWholeSample) {
  const StepCosts costs = ten_tokens();
  EXPECT_EQ(unit_cost(costs, 0, 0, {.sample = 0}).time.forward, nanoseconds{500});
  EXPECT_EQ(forward_ns(costs, 0, 10), 500);
}

TEST(ChunkCost, SpreadsACostWithoutWeightsEvenly) {
  StepCosts costs = ten_tokens();
  costs.modules[0].stages[0].units[0].time.backward_input = nanoseconds{1000};
  costs.modules[0].stages[0].units[0].output_bytes = 40;
  const UnitCost cost = unit_cost(costs, 0, 0, chunk(2, 5));
  EXPECT_EQ(cost.time.backward_input, nanoseconds{300});
  EXPECT_EQ(cost.time.backward_weight, nanoseconds{0});
  EXPECT_EQ(cost.output_bytes, 12);
  EXPECT_EQ(cost.activation_bytes, 0);
}

TEST(ChunkCost, RefusesWhatIsNoRangeOfTheSample) {
  StepCosts costs = ten_tokens();
  for (const WorkItem& item : {chunk(0, 11), chunk(5, 5), chunk(6, 5), chunk(-1, 3)}) {
    EXPECT_THROW((void)unit_cost(costs, 0, 0, item), InvalidInput);
  }
  costs.work.own().clear();
  EXPECT_THROW((void)unit_cost(costs, 0, 0, chunk(0, 5)), InvalidInput);
}

TEST(KeyValueBytes, AreThoseThatALaterChunkReads) {
  const StepCosts costs = ten_tokens();
  EXPECT_EQ(key_value_bytes(costs, 0, chunk(0, 4)), 28);
  EXPECT_EQ(key_value_bytes(costs, 0, chunk(4, 9)), 35);
  EXPECT_EQ(key_value_bytes(costs, 0, chunk(9, 10)), 0);
  EXPECT_EQ(key_value_bytes(costs, 0, {.sample = 0}), 0);
  EXPECT_FALSE(ends_sample(costs, chunk(4, 9)));
  EXPECT_TRUE(ends_sample(costs, chunk(9, 10)));
  EXPECT_TRUE(ends_sample(costs, {.sample = 0}));
}

struct RandomCosts {
  StepCosts costs;
  CostWeights exact;  // of the forward
};

// A model's stage with weights of any size, its sample's cost rounded as step_costs() does it.
RandomCosts random_costs(Rng& rng) {
  RandomCosts result{ten_tokens(), {}};
  SampleWork& work = result.costs.work[0];
  work.llm_tokens = 2 + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 20 : 100'000));
  work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2;
  work.target_tokens =
      static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(work.llm_tokens + 1)));
  const auto weight = [&rng](double scale) {
    return rng.below(4) == 0 ? 0 : scale * static_cast<double>(rng.below(1'000'000));
  };
  result.exact = {weight(1e-8), weight(1e-3), weight(1e-2)};
  StageCosts& stage = result.costs.modules[0].stages[0];
  stage.chunk_weights.forward = result.exact;
  stage.chunk_weights.activation = {0, weight(1e-2), 0};
  const double forward = result.exact.per_pair * static_cast<double>(work.llm_attention_pairs) +
                         result.exact.per_token * static_cast<double>(work.llm_tokens) +
                         result.exact.per_target_token * static_cast<double>(work.target_tokens);
  stage.units[0].time.forward = nanoseconds{std::llround(forward)};
  stage.units[0].activation_bytes = static_cast<std::int64_t>(rng.below(1'000'000'000));
  stage.units[0].output_bytes = 4096 * work.llm_tokens;
  return result;
}

double exact_forward(const RandomCosts& drawn, std::int64_t begin, std::int64_t end) {
  const SampleWork& work = drawn.costs.work[0];
  const std::int64_t first_target = work.llm_tokens - work.target_tokens;
  const auto targets = std::max<std::int64_t>(0, end - std::max(begin, first_target));
  return drawn.exact.per_pair * static_cast<double>(end * end - begin * begin) / 2 +
         drawn.exact.per_token * static_cast<double>(end - begin) +
         drawn.exact.per_target_token * static_cast<double>(targets);
}

TEST(ChunkCost, AddsUpToTheSampleAndIsWithinRoundingOfItsShare) {
  constexpr std::uint64_t kSeed = 31;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Rng rng(kSeed, i);
    const RandomCosts drawn = random_costs(rng);
    const std::int64_t tokens = drawn.costs.work[0].llm_tokens;
    UnitCost sum;
    for (std::int64_t begin = 0; begin < tokens;) {
      const std::int64_t end =
          begin + 1 +
          static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tokens - begin)));
      const UnitCost cost = unit_cost(drawn.costs, 0, 0, chunk(begin, end));
      // Pairs are rounded down to whole ones, twice.
      ASSERT_NEAR(static_cast<double>(cost.time.forward.count()),
                  exact_forward(drawn, begin, end),
                  2 + drawn.exact.per_pair)
          << "seed " << kSeed << ", case " << i << ", tokens [" << begin << ", " << end << ")";
      ASSERT_GE(cost.time.forward.count(), 0);
      ASSERT_GE(cost.activation_bytes, 0);
      ASSERT_EQ(cost.output_bytes, 4096 * (end - begin));
      sum.time += cost.time;
      sum.activation_bytes += cost.activation_bytes;
      sum.output_bytes += cost.output_bytes;
      begin = end;
    }
    const UnitCost& whole = drawn.costs.modules[0].stages[0].units[0];
    ASSERT_EQ(sum.time.forward, whole.time.forward) << "seed " << kSeed << ", case " << i;
    ASSERT_EQ(sum.activation_bytes, whole.activation_bytes);
    ASSERT_EQ(sum.output_bytes, whole.output_bytes);
  }
}

}  // namespace
}  // namespace entrain
