// Gradients of pipelined, deferred, replicated training against one plain process: for every
// layout, schedule and freezing, under assignments wilder than any policy's.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
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
using oracle::has_chunks;
using oracle::kFrozenPatterns;
using oracle::make_gradient_batch;
using oracle::ModelParts;
using oracle::recompute_layers;
using oracle::run_step;
using oracle::StageLanes;
using oracle::StepConfiguration;
using oracle::StepCoverage;
using oracle::StepLayout;
using oracle::StepPolicy;
using oracle::StepResult;

struct Cell {
  StepLayout layout;
  std::string schedule;
};

// Every schedule × {a lane for each of 1-3 LLM and 1-2 encoder stages, one lane for all, several
// stages of a module a lane, every module on every lane} × {1-2 replicas}.
std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const std::string& schedule : schedule_names()) {
    const auto add = [&](std::vector<int> stages, int replicas, StageLanes lanes) {
      cells.push_back({{std::move(stages), replicas, lanes}, schedule});
    };
    for (const int replicas : {1, 2}) {
      for (const int llm_stages : {1, 2, 3}) {
        for (const int encoder_stages : {1, 2}) {
          add({encoder_stages, llm_stages}, replicas, StageLanes::kOwn);
        }
      }
      add({1, 1}, replicas, StageLanes::kSingle);
      add({2, 3}, replicas, StageLanes::kSingle);
      add({1, 4}, replicas, StageLanes::kWrapped);
      add({4, 3}, replicas, StageLanes::kWrapped);
      add({2, 2}, replicas, StageLanes::kColocated);
      add({3, 3}, replicas, StageLanes::kColocated);
    }
  }
  return cells;
}

// A third of them, another third for each of three successive numbers: variants of a model and of
// policies meet every cell between them.
std::vector<Cell> third_of_cells(int number) {
  std::vector<Cell> cells;
  for (const Cell& cell : all_cells()) {
    if (number++ % 3 == 0) {
      cells.push_back(cell);
    }
  }
  return cells;
}

class Gradients : public testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

// Twice each, on two batches, once with recomputed layers; every other one of several replicas with
// a sharded optimizer.
TEST_F(Gradients, EqualTheReferenceForEveryLayoutScheduleAndFreezing) {
  const std::vector<GradientBatch> batches = {make_gradient_batch(1, 10, 1),
                                              make_gradient_batch(1, 7, 2)};
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 0;
  for (const Cell& cell : all_cells()) {
    for (const FrozenPattern frozen : kFrozenPatterns) {
      for (const GradientBatch& batch : batches) {
        Rng rng(++seed, 77);
        const bool recompute = seed / 2 % 2 == 1;  // with either batch in turn
        const StepConfiguration configuration =
            configure(rng,
                      batch,
                      cell.layout,
                      cell.schedule,
                      frozen,
                      recompute,
                      cell.layout.replicas > 1 && seed / 3 % 2 == 1);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
        coverage.add(configuration);
      }
    }
  }
  EXPECT_EQ(coverage.expect_schedules(100), deviations.configurations);
  print(deviations);
}

TEST_F(Gradients, EqualTheReferenceWithTwoEncoders) {
  const GradientBatch batch = make_gradient_batch(2, 9, 3);
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 5000;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 2, 2}, 1, StageLanes::kOwn},
                                     StepLayout{{2, 1, 1}, 2, StageLanes::kOwn},
                                     StepLayout{{1, 1, 2}, 1, StageLanes::kSingle},
                                     StepLayout{{3, 1, 4}, 1, StageLanes::kWrapped},
                                     StepLayout{{2, 2, 2}, 2, StageLanes::kColocated}}) {
      for (const FrozenPattern frozen : kFrozenPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration = configure(rng,
                                                          batch,
                                                          layout,
                                                          schedule,
                                                          frozen,
                                                          seed % 2 == 0,
                                                          layout.replicas > 1 && seed % 3 != 0);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
        coverage.add(configuration);
      }
    }
  }
  EXPECT_EQ(coverage.expect_schedules(10), deviations.configurations);
  print(deviations);
}

// Sound beside images and alone: lanes of their own, one for all, stages of both on one lane.
TEST_F(Gradients, EqualTheReferenceWithAudio) {
  const GradientBatch both = make_gradient_batch({"vision", "audio"}, 11, 7);
  const GradientBatch alone = make_gradient_batch({"audio"}, 9, 8);
  const GradientBatch whisper =
      make_gradient_batch({"vision", "audio"}, 9, 16, false, ModelParts::kWhisper);
  struct AudioCell {
    const GradientBatch* batch;
    StepLayout layout;
  };
  const std::vector<AudioCell> cells = {{&both, {{1, 2, 2}, 1, StageLanes::kOwn}},
                                        {&both, {{2, 1, 1}, 2, StageLanes::kOwn}},
                                        {&both, {{1, 1, 2}, 1, StageLanes::kSingle}},
                                        {&both, {{3, 3, 4}, 1, StageLanes::kWrapped}},
                                        {&both, {{2, 2, 2}, 2, StageLanes::kColocated}},
                                        {&alone, {{4, 2}, 1, StageLanes::kOwn}},
                                        {&alone, {{1, 1}, 2, StageLanes::kSingle}},
                                        {&whisper, {{1, 3, 2}, 1, StageLanes::kOwn}},
                                        {&whisper, {{2, 2, 2}, 2, StageLanes::kColocated}}};
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 15'000;
  for (const std::string& schedule : schedule_names()) {
    for (const AudioCell& cell : cells) {
      for (const FrozenPattern frozen : kFrozenPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration =
            configure(rng,
                      *cell.batch,
                      cell.layout,
                      schedule,
                      frozen,
                      seed % 2 == 0,
                      cell.layout.replicas > 1 && seed % 3 != 0);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(*cell.batch, run_step(*cell.batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
        coverage.add(configuration);
      }
    }
  }
  EXPECT_EQ(coverage.expect_schedules(10), deviations.configurations);
  print(deviations);
}

// The head's matrix is the embedding's table: one stage, two stages on one lane, copies on two.
TEST_F(Gradients, EqualTheReferenceWithTiedEmbeddings) {
  const GradientBatch batch = make_gradient_batch({"vision"}, 10, 9, /*tied=*/true);
  ASSERT_FALSE(batch.weights.contains("lm_head.weight"));
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 18'000;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : {StepLayout{{1, 3}, 1, StageLanes::kOwn},
                                     StepLayout{{2, 2}, 2, StageLanes::kOwn},
                                     StepLayout{{1, 1}, 2, StageLanes::kOwn},
                                     StepLayout{{2, 3}, 1, StageLanes::kSingle},
                                     StepLayout{{1, 3}, 1, StageLanes::kWrapped},
                                     StepLayout{{1, 4}, 2, StageLanes::kWrapped},
                                     StepLayout{{3, 3}, 1, StageLanes::kColocated}}) {
      for (const FrozenPattern frozen : kFrozenPatterns) {
        Rng rng(++seed, 77);
        const StepConfiguration configuration = configure(rng,
                                                          batch,
                                                          layout,
                                                          schedule,
                                                          frozen,
                                                          seed % 2 == 0,
                                                          layout.replicas > 1 && seed % 3 != 0);
        SCOPED_TRACE(describe(configuration, seed));
        expect_reference(batch, run_step(batch, configuration), deviations);
        ASSERT_FALSE(HasFailure());
        coverage.add(configuration);
      }
    }
  }
  EXPECT_EQ(coverage.expect_schedules(10), deviations.configurations);
  print(deviations);
}

// Every part that families of models have; every other configuration with chunks, whose positions
// then begin within a sample.
TEST_F(Gradients, EqualTheReferenceWithEveryPartOfAModel) {
  Deviations deviations;
  StepCoverage coverage;
  for (const ModelParts parts : {ModelParts::kRotary,
                                 ModelParts::kLearned,
                                 ModelParts::kShuffled,
                                 ModelParts::kDeepstack,
                                 ModelParts::kWhisper,
                                 ModelParts::kTiled}) {
    const char* const encoder = parts == ModelParts::kWhisper ? "audio" : "vision";
    const GradientBatch batch = make_gradient_batch({encoder}, 10, 11, false, parts);
    std::uint64_t seed = 16'001 + 6'000 * static_cast<std::uint64_t>(parts);
    for (const Cell& cell : third_of_cells(static_cast<int>(parts))) {
      Rng rng(++seed, 77);
      const StepPolicy policy = seed % 2 == 0 ? StepPolicy::kRandom : StepPolicy::kRandomChunks;
      const StepConfiguration configuration = configure(rng,
                                                        batch,
                                                        cell.layout,
                                                        cell.schedule,
                                                        frozen_pattern_of(seed),
                                                        seed / 3 % 2 == 1,
                                                        cell.layout.replicas > 1 && seed % 3 != 0,
                                                        policy);
      SCOPED_TRACE(describe(configuration, seed));
      expect_reference(batch, run_step(batch, configuration), deviations);
      ASSERT_FALSE(HasFailure());
      coverage.add(configuration);
    }
  }
  EXPECT_EQ(coverage.expect_schedules(5), deviations.configurations);
  print(deviations);
}

// Adapters on every linear layer, on some of each part, beside parameters that are trained
// themselves; and layers of which a part is frozen by name.
TEST_F(Gradients, EqualTheReferenceWithAdaptersAndLayersFrozenInPart) {
  struct Variant {
    ModelParts parts;
    oracle::BatchTraining training;
  };
  const std::vector<Variant> variants = {
      {ModelParts::kUsual, {{}, {3, 5.0, {"*"}, {"*norm*"}}}},
      {ModelParts::kRotary, {{}, {2, 4.0, {"q_proj", "v_proj", "mlp.down_proj"}, {"projector"}}}},
      {ModelParts::kLearned,
       {{"layers.[01].*"}, {4, 1.0, {"vision.*_proj", "merger.mlp.?", "llm.*.mlp.*"}, {}}}},
      {ModelParts::kDeepstack,
       {{"llm"}, {2, 2.0, {"deepstack.*", "mlp.2", "blocks.0.attn.qkv"}, {"positions"}}}},
      {ModelParts::kUsual, {{"norm1", "*.attn*", "layers.1.mlp.*", "merger.mlp.2"}, {}}},
      {ModelParts::kLearned, {{"vision.*", "*.bias", "layers.?.*_proj", "lm_head"}, {}}}};
  std::uint64_t seed = 60'000;
  Deviations deviations;
  StepCoverage coverage;
  int number = 0;
  for (const Variant& variant : variants) {
    const GradientBatch batch =
        make_gradient_batch({"vision"}, 10, 11, false, variant.parts, variant.training);
    for (const Cell& cell : third_of_cells(number++)) {
      Rng rng(++seed, 77);
      const StepPolicy policy = seed % 2 == 0 ? StepPolicy::kRandom : StepPolicy::kRandomChunks;
      const StepConfiguration configuration = configure(rng,
                                                        batch,
                                                        cell.layout,
                                                        cell.schedule,
                                                        FrozenPattern::kGiven,
                                                        seed / 3 % 2 == 1,
                                                        cell.layout.replicas > 1 && seed % 3 != 0,
                                                        policy);
      SCOPED_TRACE(describe(configuration, seed));
      expect_reference(batch, run_step(batch, configuration), deviations);
      ASSERT_FALSE(HasFailure());
      coverage.add(configuration);
    }
  }
  EXPECT_EQ(coverage.expect_schedules(5), deviations.configurations);
  print(deviations);
}

// Half of the samples are cut into two to four chunks anywhere, so that features stand on either
// side of cuts, or across them, and targets begin at them; with one encoder and with two, with
// recomputed layers and without.
TEST_F(Gradients, EqualTheReferenceWithSamplesCutIntoChunks) {
  const std::vector<GradientBatch> batches = {make_gradient_batch(1, 10, 7),
                                              make_gradient_batch(2, 9, 8)};
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 30'000;
  int cut = 0;
  for (const Cell& cell : third_of_cells(0)) {
    for (const FrozenPattern frozen : kFrozenPatterns) {
      Rng rng(++seed, 77);
      const GradientBatch& batch = batches[seed % 2];
      StepLayout layout = cell.layout;
      if (batch.model.encoders.size() == 2) {
        layout.stages.insert(layout.stages.begin(), 1);
      }
      const StepConfiguration configuration = configure(rng,
                                                        batch,
                                                        layout,
                                                        cell.schedule,
                                                        frozen,
                                                        seed / 2 % 2 == 1,
                                                        layout.replicas > 1 && seed / 3 % 2 == 1,
                                                        StepPolicy::kRandomChunks);
      SCOPED_TRACE(describe(configuration, seed));
      expect_reference(batch, run_step(batch, configuration), deviations);
      ASSERT_FALSE(HasFailure());
      coverage.add(configuration);
      cut += has_chunks(configuration.assignment) ? 1 : 0;
    }
  }
  EXPECT_EQ(coverage.expect_schedules(10), deviations.configurations);
  EXPECT_GT(cut, deviations.configurations * 2 / 3);
  print(deviations);
}

// Conversations of several turns: features anywhere between the tokens, and losses in several
// ranges; every other configuration with chunks. M-RoPE and sound in turn with the usual.
TEST_F(Gradients, EqualTheReferenceWithInterleavedFeatures) {
  const std::vector<GradientBatch> batches = {
      make_gradient_batch({"vision"}, 10, 21, false, ModelParts::kUsual, {}, true),
      make_gradient_batch({"vision"}, 10, 22, false, ModelParts::kRotary, {}, true),
      make_gradient_batch({"vision", "audio"}, 11, 23, false, ModelParts::kUsual, {}, true)};
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 60'000;
  for (const Cell& cell : third_of_cells(1)) {
    for (const GradientBatch& batch : batches) {
      Rng rng(++seed, 77);
      StepLayout layout = cell.layout;
      if (batch.model.encoders.size() == 2) {
        layout.stages.insert(layout.stages.begin(), 1);
      }
      const StepConfiguration configuration =
          configure(rng,
                    batch,
                    layout,
                    cell.schedule,
                    frozen_pattern_of(seed / 3),
                    seed / 2 % 2 == 1,
                    layout.replicas > 1 && seed / 3 % 2 == 1,
                    seed % 2 == 0 ? StepPolicy::kRandomChunks : StepPolicy::kRandom);
      SCOPED_TRACE(describe(configuration, seed));
      expect_reference(batch, run_step(batch, configuration), deviations);
      ASSERT_FALSE(HasFailure());
      coverage.add(configuration);
    }
  }
  EXPECT_EQ(coverage.expect_schedules(5), deviations.configurations);
  print(deviations);
}

// Freezings and recomputation in turn.
TEST_F(Gradients, EqualTheReferenceUnderPolicies) {
  const std::vector<GradientBatch> batches = {make_gradient_batch(1, 10, 9),
                                              make_gradient_batch(2, 9, 10)};
  Deviations deviations;
  StepCoverage coverage;
  for (const StepPolicy policy :
       {StepPolicy::kSequential, StepPolicy::kEntrain, StepPolicy::kEntrainChunks}) {
    std::uint64_t seed = 40'000;
    for (const Cell& cell : third_of_cells(static_cast<int>(policy))) {
      Rng rng(++seed, 77);
      const GradientBatch& batch = batches[seed % 2];
      StepLayout layout = cell.layout;
      if (batch.model.encoders.size() == 2) {
        layout.stages.insert(layout.stages.begin(), 1);
      }
      const StepConfiguration configuration = configure(rng,
                                                        batch,
                                                        layout,
                                                        cell.schedule,
                                                        frozen_pattern_of(seed),
                                                        seed / 2 % 2 == 1,
                                                        layout.replicas > 1 && seed / 3 % 2 == 1,
                                                        policy);
      SCOPED_TRACE(describe(configuration, seed));
      expect_reference(batch, run_step(batch, configuration), deviations);
      ASSERT_FALSE(HasFailure());
      if (policy == StepPolicy::kEntrainChunks) {
        EXPECT_TRUE(has_chunks(configuration.assignment));
      }
      coverage.add(configuration);
    }
  }
  EXPECT_EQ(coverage.expect_schedules(5), deviations.configurations);
  print(deviations);
}

// Every third freezing of a cell in turn; the comparison with the reference has all of them.
TEST_F(Gradients, RecomputedLayersChangeNoBit) {
  const std::vector<GradientBatch> batches = {make_gradient_batch(1, 10, 5),
                                              make_gradient_batch(2, 9, 6)};
  std::uint64_t seed = 12'000;
  int recomputed = 0;
  for (const Cell& cell : all_cells()) {
    for (const FrozenPattern frozen : kFrozenPatterns) {
      if (++seed % 3 != 0) {
        continue;
      }
      Rng rng(seed, 77);
      const GradientBatch& batch = batches[seed / 2 % 2];
      StepLayout layout = cell.layout;
      if (batch.model.encoders.size() == 2) {
        layout.stages.insert(layout.stages.begin(), 1);
      }
      StepConfiguration configuration = configure(rng, batch, layout, cell.schedule, frozen);
      const StepResult kept = run_step(batch, configuration);
      recompute_layers(rng, configuration.plan);
      SCOPED_TRACE(describe(configuration, seed));
      expect_bitwise_equal(kept, run_step(batch, configuration));
      ASSERT_FALSE(HasFailure());
      recomputed += recomputes(configuration.plan) ? 1 : 0;
    }
  }
  std::printf("%d configurations with recomputed layers\n", recomputed);
  EXPECT_GT(recomputed, 350);
}

// Every replica sums, clips and hands out its share: the same sums in the same order.
TEST_F(Gradients, ShardedOptimizersChangeNoBit) {
  const GradientBatch batch = make_gradient_batch(1, 10, 5);
  std::uint64_t seed = 15'000;
  int configurations = 0;
  for (const Cell& cell : all_cells()) {
    if (cell.layout.replicas == 1) {
      continue;
    }
    StepLayout layout = cell.layout;
    layout.replicas = 2 + static_cast<int>(++seed % 2);
    Rng rng(seed, 77);
    StepConfiguration configuration =
        configure(rng, batch, layout, cell.schedule, frozen_pattern_of(seed));
    const StepResult whole = run_step(batch, configuration);
    shard_optimizer(configuration);
    SCOPED_TRACE(describe(configuration, seed));
    StepResult sharded = run_step(batch, configuration);
    EXPECT_NEAR(sharded.gradient_norm, whole.gradient_norm, 1e-12 * whole.gradient_norm);
    sharded.gradient_norm = whole.gradient_norm;
    expect_bitwise_equal(whole, sharded);
    ASSERT_FALSE(HasFailure());
    ++configurations;
  }
  std::printf("%d configurations with sharded optimizers\n", configurations);
}

TEST_F(Gradients, TwoRunsOfOneConfigurationAreBitwiseEqual) {
  const GradientBatch batch = make_gradient_batch(1, 10, 4);
  std::uint64_t seed = 9000;
  int configurations = 0;
  for (const Cell& cell : all_cells()) {
    Rng rng(++seed, 77);
    const StepConfiguration configuration =
        configure(rng, batch, cell.layout, cell.schedule, frozen_pattern_of(seed));
    SCOPED_TRACE(describe(configuration, seed));
    expect_two_runs_alike(batch, configuration);
    ASSERT_FALSE(HasFailure());
    ++configurations;
  }
  std::printf("%d configurations run twice\n", configurations);
}

}  // namespace
}  // namespace entrain
