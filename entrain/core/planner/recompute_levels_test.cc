#include "entrain/core/planner/recompute_levels.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

// An LLM of 8 decoders on two lanes of 5 layers each, 20 samples of 10 tokens in 10 slots.
struct TwoStages {
  TwoStages() {
    model.name = "two-stages";
    model.llm.num_layers = 8;
    model.llm.hidden = 16;
    model.llm.num_heads = 2;
    model.llm.num_kv_heads = 2;
    model.llm.head_dim = 8;
    model.llm.intermediate = 16;
    model.llm.vocab_size = 32;
    profile.device = "test";
    for (const LayerKind kind :
         {LayerKind::kTokenEmbedding, LayerKind::kDecoder, LayerKind::kOutputHead}) {
      LayerProfile layer;
      layer.module = "llm";
      layer.kind = kind;
      layer.forward = {.per_token_ns = 1};
      // A recomputed decoder keeps 16 numbers of 4 bytes.
      layer.activation_bytes_per_token = kind == LayerKind::kDecoder ? 1064 : 8;
      profile.layers.push_back(layer);
    }
    plan.num_slots = 10;
    plan.modules = {{"llm", 1, 1, {{0, 5}, {5, 10}}}};
    plan.lanes = default_lanes(plan.modules);
    SampleWork sample;
    sample.llm_tokens = 10;
    sample.target_tokens = 1;
    batch.assign(20, sample);
  }

  [[nodiscard]] RecomputeLevels levels(std::vector<std::int64_t> lane_bytes) {
    plan.limits.lane_bytes = std::move(lane_bytes);
    return recompute_levels(model, plan, profile, batch);
  }

  ModelSpec model;
  Profile profile;
  Plan plan;
  std::vector<SampleWork> batch;
};

RecomputeCounts counts(int first, int second) {
  return {{first, second}};
}

// The first lane holds two slots of 4 decoders, the second one slot. A slot's decoder is 21,280
// bytes of activations, 1,280 recomputed, 20,000 of which come back.
TEST(RecomputeLevels, RelieveTheLaneThatLacksMost) {
  TwoStages stages;
  const RecomputeLevels all = stages.levels({100'000, 1'000'000});
  ASSERT_GE(all.levels.size(), 4U);
  EXPECT_EQ(all.levels.front(), counts(0, 0));
  EXPECT_EQ(all.levels.back(), counts(5, 5));
  // 2 · 4 · 21,280 = 170,240 without; with three of the decoders behind the embedding
  // 2 · (3 · 1,280 + 21,280) + 20,000 = 70,240, with two 110,240.
  EXPECT_EQ(all.levels[static_cast<std::size_t>(all.guess)], counts(4, 0));
  EXPECT_EQ(all.levels[static_cast<std::size_t>(all.guess) - 1], counts(3, 0));
}

TEST(RecomputeLevels, GuessNoneWhereAllFitsAndAllWhereNothingDoes) {
  TwoStages stages;
  EXPECT_EQ(stages.levels({1'000'000, 1'000'000}).guess, 0);
  const RecomputeLevels none = stages.levels({1, 1});
  EXPECT_EQ(none.guess, static_cast<int>(none.levels.size()) - 1);
}

TEST(RecomputeLevels, NeverTakeALayerBack) {
  Rng rng(61);
  int several = 0;
  for (int i = 0; i < 100; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.cluster.memory_bytes = 0;
    const PlanSearchRequest request = plan_case.request_of();
    const PlanScorer scorer(request);
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      Plan plan = scorer.make_candidate(config).plan;
      for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        plan.limits.lane_bytes.push_back(1 + static_cast<std::int64_t>(rng.below(50'000)));
      }
      const RecomputeLevels all =
          recompute_levels(plan_case.model, plan, plan_case.profile, request.batches.front());
      for (std::size_t level = 0; level < all.levels.size(); ++level) {
        for (std::size_t module = 0; module < plan.modules.size(); ++module) {
          plan.modules[module].recompute = all.levels[level][module];
          for (std::size_t s = 0; level > 0 && s < plan.modules[module].stages.size(); ++s) {
            ASSERT_GE(all.levels[level][module][s], all.levels[level - 1][module][s]);
          }
        }
        ASSERT_NO_THROW(validate(plan, plan_case.model, "level"));
        ASSERT_TRUE(level == 0 || all.levels[level] != all.levels[level - 1]);
      }
      ASSERT_FALSE(all.levels.empty());
      plan.modules.front().recompute = all.levels.back().front();
      EXPECT_EQ(plan.modules.front().recomputed(0),
                plan.modules.front().stages[0].end - plan.modules.front().stages[0].begin);
      several += all.levels.size() > 3 ? 1 : 0;
    }
  }
  EXPECT_GT(several, 50);
}

TEST(RecomputeLevels, PlansWithoutNameNone) {
  Plan plan = TwoStages().plan;
  EXPECT_EQ(full_recompute(plan), (RecomputeCounts{{5, 5}}));
  set_recompute(full_recompute(plan), plan);
  EXPECT_EQ(plan.modules[0].recompute, (std::vector<int>{5, 5}));
  EXPECT_EQ(recomputed_layers(plan), 10);
  set_recompute({{0, 0}}, plan);
  EXPECT_TRUE(plan.modules[0].recompute.empty());
  set_recompute({{0, 2}}, plan);
  EXPECT_EQ(recomputed_layers(plan), 2);
  set_recompute({}, plan);
  EXPECT_TRUE(plan.modules[0].recompute.empty());
}

}  // namespace
}  // namespace entrain
