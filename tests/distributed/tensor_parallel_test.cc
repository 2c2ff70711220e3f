// Lanes of several ranks against one plain process: every schedule, policy and freezing, with the
// same tensor parallelism in all modules and with different ones.
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/engine/gradient_step.h"
#include "tests/oracle/engine/step_coverage.h"

namespace entrain {
namespace {

using oracle::configure;
using oracle::Deviations;
using oracle::frozen_pattern_of;
using oracle::FrozenPattern;
using oracle::GradientBatch;
using oracle::kFrozenPatterns;
using oracle::make_gradient_batch;
using oracle::ModelParts;
using oracle::run_step;
using oracle::StageLanes;
using oracle::StepConfiguration;
using oracle::StepCoverage;
using oracle::StepLayout;
using oracle::StepPolicy;
using oracle::StepResult;

// {1-3 LLM stages} × {1-2 replicas}, and lanes that host several stages; two ranks in the lanes of
// either module or of both.
std::vector<StepLayout> layouts() {
  std::vector<StepLayout> result;
  for (const int replicas : {1, 2}) {
    for (const int llm_stages : {1, 2, 3}) {
      for (const std::vector<int>& degrees :
           std::vector<std::vector<int>>{{2, 2}, {1, 2}, {2, 1}}) {
        result.push_back(
            {{1 + (llm_stages + replicas) % 2, llm_stages}, replicas, StageLanes::kOwn, degrees});
      }
    }
    result.push_back({{2, 3}, replicas, StageLanes::kSingle, {2, 2}});
    result.push_back({{3, 4}, replicas, StageLanes::kWrapped, {1, 2}});
    result.push_back({{3, 3}, replicas, StageLanes::kColocated, {2, 2}});
  }
  return result;
}

class TensorParallel : public testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

// Recomputed layers, freezings and sharded optimizers in turn.
TEST_F(TensorParallel, GradientsEqualTheReferenceForEverySchedulePolicyAndLayout) {
  const GradientBatch batch = make_gradient_batch(1, 9, 1);
  Deviations deviations;
  std::uint64_t seed = 50'000;
  int recomputed = 0;
  int sharded = 0;
  for (const std::string& schedule : schedule_names()) {
    for (const StepPolicy policy :
         {StepPolicy::kSequential, StepPolicy::kEntrain, StepPolicy::kRandom}) {
      for (const StepLayout& layout : layouts()) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration = configure(rng,
                                                          batch,
                                                          layout,
                                                          schedule,
                                                          frozen_pattern_of(seed),
                                                          seed / 2 % 2 == 1,
                                                          layout.replicas > 1 && seed / 3 % 2 == 1,
                                                          policy);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
        recomputed += recomputes(configuration.plan) ? 1 : 0;
        sharded += configuration.plan.shard_optimizer ? 1 : 0;
      }
    }
  }
  print(deviations);
  std::printf("%d with recomputed layers, %d with sharded optimizers\n", recomputed, sharded);
  EXPECT_GT(recomputed, deviations.configurations / 3);
  EXPECT_GT(sharded, deviations.configurations / 8);
}

// {1-4 LLM stages} × {1-3 replicas} × every schedule × every policy; degrees, encoders, freezings,
// recomputed layers, sharded optimizers and tied tables are drawn, each pair of values at least
// once.
TEST_F(TensorParallel, GradientsEqualTheReferenceForEveryPairOfFactors) {
  std::map<std::pair<int, bool>, GradientBatch> batches;  // by encoders and tied
  for (const bool tied : {false, true}) {
    batches[{1, tied}] = make_gradient_batch({"vision"}, 9, 21, tied);
    batches[{2, tied}] = make_gradient_batch({"vision", "thermal"}, 9, 22, tied);
  }
  const std::vector<std::pair<int, int>> degrees = {{1, 1}, {1, 2}, {2, 1}, {2, 2}};
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 57'000;
  for (const std::string& schedule : schedule_names()) {
    for (const StepPolicy policy :
         {StepPolicy::kSequential, StepPolicy::kEntrain, StepPolicy::kEntrainChunks}) {
      for (const int llm_stages : {1, 2, 3, 4}) {
        for (const int replicas : {1, 2, 3}) {
          Rng rng(++seed, 77);
          const int encoders = 1 + static_cast<int>(rng.below(2));
          const GradientBatch& batch = batches.at({encoders, rng.below(2) == 1});
          const auto [of_encoders, of_llm] = degrees[rng.below(degrees.size())];
          StepLayout layout;
          layout.replicas = replicas;
          for (int encoder = 0; encoder < encoders; ++encoder) {
            layout.stages.push_back(1 + static_cast<int>(rng.below(2)));
            layout.tensor_parallel.push_back(of_encoders);
          }
          layout.stages.push_back(llm_stages);
          layout.tensor_parallel.push_back(of_llm);
          if (of_encoders == of_llm && rng.below(4) == 0) {
            layout.lanes = StageLanes::kSingle;
          }
          if (schedule == "interleaved" && llm_stages > 2) {
            layout.lanes = StageLanes::kWrapped;
          } else if (schedule == "dip") {
            layout.lanes = StageLanes::kColocated;
            layout.stages.assign(layout.stages.size(), llm_stages);
            layout.tensor_parallel.assign(layout.stages.size(), of_llm);
          }
          const FrozenPattern frozen = frozen_pattern_of(rng.next());
          const bool recompute = rng.below(2) == 1;
          const bool shard = replicas > 1 && rng.below(2) == 1;
          const StepConfiguration configuration =
              configure(rng, batch, layout, schedule, frozen, recompute, shard, policy);
          SCOPED_TRACE(describe(configuration, seed));
          expect_reference(batch, run_step(batch, configuration), deviations);
          ASSERT_FALSE(HasFailure());
          coverage.add(configuration);
        }
      }
    }
  }
  EXPECT_EQ(coverage.expect_schedules(10), deviations.configurations);
  coverage.expect_pairs(oracle::all_step_factors());
  print(deviations);
}

// All of them on one layout of each kind.
TEST_F(TensorParallel, GradientsEqualTheReferenceForEveryFreezing) {
  const GradientBatch batch = make_gradient_batch(2, 9, 3);
  Deviations deviations;
  std::uint64_t seed = 52'000;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2, 2}, 1, StageLanes::kOwn, {2, 1, 2}},
                                     StepLayout{{2, 2, 2}, 1, StageLanes::kColocated, {2, 2, 2}}}) {
      for (const FrozenPattern frozen : kFrozenPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration =
            configure(rng, batch, layout, schedule, frozen, seed % 2 == 0);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  print(deviations);
}

// Convolutions beside patches; tables tied within a lane and across two; samples cut into chunks;
// every part that a model may have; adapters, and layers frozen in part.
TEST_F(TensorParallel, GradientsEqualTheReferenceWithAudioTiedTablesAndChunks) {
  struct Case {
    GradientBatch batch;
    StepLayout layout;
    StepPolicy policy = StepPolicy::kRandom;
    bool frozen_by_name = false;
  };
  const std::vector<Case> cases = {
      {make_gradient_batch({"vision", "audio"}, 9, 7), {{1, 2, 2}, 1, StageLanes::kOwn, {1, 2, 2}}},
      {make_gradient_batch({"audio"}, 9, 8), {{4, 1}, 2, StageLanes::kOwn, {2, 1}}},
      {make_gradient_batch({"vision"}, 10, 9, /*tied=*/true),
       {{1, 3}, 1, StageLanes::kOwn, {1, 2}}},
      {make_gradient_batch({"vision"}, 10, 9, /*tied=*/true),
       {{2, 3}, 2, StageLanes::kSingle, {2, 2}}},
      {make_gradient_batch(1, 10, 7),
       {{1, 2}, 1, StageLanes::kOwn, {2, 2}},
       StepPolicy::kRandomChunks},
      {make_gradient_batch(1, 10, 7),
       {{1, 2}, 2, StageLanes::kOwn, {1, 2}},
       StepPolicy::kEntrainChunks},
      {make_gradient_batch({"vision"}, 10, 11, false, ModelParts::kRotary),
       {{2, 2}, 1, StageLanes::kOwn, {2, 2}}},
      {make_gradient_batch({"vision", "audio"}, 9, 12, /*tied=*/true, ModelParts::kRotary),
       {{1, 2, 3}, 2, StageLanes::kOwn, {2, 1, 2}},
       StepPolicy::kRandomChunks},
      {make_gradient_batch({"vision"}, 10, 13, false, ModelParts::kLearned),
       {{2, 2}, 1, StageLanes::kOwn, {2, 1}}},
      {make_gradient_batch({"vision", "audio"}, 9, 14, false, ModelParts::kShuffled),
       {{3, 1, 2}, 1, StageLanes::kOwn, {2, 2, 2}}},
      {make_gradient_batch({"vision", "audio"}, 9, 15, false, ModelParts::kDeepstack),
       {{2, 1, 3}, 1, StageLanes::kOwn, {2, 1, 2}},
       StepPolicy::kRandomChunks},
      {make_gradient_batch({"vision", "audio"}, 9, 15, false, ModelParts::kWhisper),
       {{1, 3, 2}, 1, StageLanes::kOwn, {1, 2, 2}}},
      {make_gradient_batch({"vision"}, 10, 16, false, ModelParts::kTiled),
       {{2, 2}, 1, StageLanes::kOwn, {2, 2}},
       StepPolicy::kRandomChunks},
      {make_gradient_batch(
           {"vision"}, 10, 17, false, ModelParts::kUsual, {{}, {3, 5.0, {"*"}, {"*norm*"}}}),
       {{2, 2}, 2, StageLanes::kOwn, {2, 2}},
       StepPolicy::kRandomChunks,
       true},
      {make_gradient_batch(
           {"vision", "audio"},
           10,
           18,
           false,
           ModelParts::kShuffled,
           {{"blocks.0.*"}, {2, 3.0, {"q_proj", "down_proj", "merger.*"}, {"ln_q"}}}),
       {{2, 1, 3}, 1, StageLanes::kOwn, {2, 1, 2}},
       StepPolicy::kRandom,
       true},
      {make_gradient_batch({"vision"},
                           10,
                           19,
                           /*tied=*/true,
                           ModelParts::kRotary,
                           {{"attn.qkv", "model.layers.*.mlp.*", "q_norm"}, {}}),
       {{1, 3}, 1, StageLanes::kOwn, {2, 2}},
       StepPolicy::kEntrainChunks,
       true}};
  Deviations deviations;
  std::uint64_t seed = 54'000;
  for (const std::string& schedule : schedule_names()) {
    for (const Case& one : cases) {
      for (const bool recompute : {false, true}) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration =
            configure(rng,
                      one.batch,
                      one.layout,
                      schedule,
                      one.frozen_by_name ? FrozenPattern::kGiven : frozen_pattern_of(seed),
                      recompute,
                      /*shard_optimizer=*/false,
                      one.policy);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(one.batch, run_step(one.batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  print(deviations);
}

TEST_F(TensorParallel, TwoRunsAreBitwiseEqual) {
  const GradientBatch batch = make_gradient_batch(1, 9, 4);
  std::uint64_t seed = 56'000;
  int configurations = 0;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2}, 1, StageLanes::kOwn, {2, 2}},
                                     StepLayout{{2, 1}, 2, StageLanes::kOwn, {1, 2}}}) {
      Rng rng(++seed, 77);
      const StepConfiguration configuration =
          configure(rng, batch, layout, schedule, frozen_pattern_of(seed), seed % 2 == 0);
      SCOPED_TRACE(describe(configuration, seed));
      expect_two_runs_alike(batch, configuration);
      ASSERT_FALSE(HasFailure());
      ++configurations;
    }
  }
  std::printf("%d configurations run twice\n", configurations);
}

}  // namespace
}  // namespace entrain
