// Peak activation bytes of every lane: what the simulator predicts from a profile, against what the
// ranks of a real step allocate.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/profiler/profile_run.h"

#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine {
namespace {

constexpr int kDemoPatch = 14;
constexpr double kTolerance = 0.10;
// The prediction holds all of a unit's activations until its weight half; its input half frees what
// no matrix reads.
constexpr double kFreedByInputHalf = 0.20;

// The demo's model, with more layers so that every lane has several.
ModelSpec demo_model() {
  ModelSpec model = tiny::tiny_model();
  EncoderSpec& vision = model.encoders[0];
  vision.num_layers = 4;
  vision.hidden = 128;
  vision.num_heads = 4;
  vision.intermediate = 320;
  vision.patch_size = kDemoPatch;
  model.llm.num_layers = 4;
  model.llm.hidden = 160;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 40;
  model.llm.intermediate = 480;
  model.llm.vocab_size = 264;
  return model;
}

// Charts of the demo's sizes: 7 x 7 to 4 x 5 merge blocks, questions of about 60 tokens.
std::vector<SampleWork> demo_batch() {
  std::vector<SampleWork> batch;
  for (int i = 0; i < 24; ++i) {
    std::vector<std::pair<int, int>> images;
    for (int image = 0; image < (i % 5 == 4 ? 0 : 1 + i % 2); ++image) {
      images.emplace_back(4 + i % 4, 5 + (i + image) % 3);
    }
    batch.push_back(tiny::sample_of(images, 50 + 3 * (i % 7), 4 + i % 6));
  }
  return batch;
}

struct MemoryCase {
  std::string schedule;
  oracle::FrozenPattern frozen = oracle::FrozenPattern::kNone;
  std::vector<int> stages = {2, 2};
  int recompute_every = 0;  // one of so many layers of a stage; 0: none
  at::ScalarType precision = at::kFloat;
  bool chunks = false;  // about half of the samples cut
  std::vector<int> tensor_parallel = {1, 1};
};

class PeakMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ProfileOptions options = quick_options(1024);
    options.repeats = 3;
    options.seconds = 5;
    profile_ = new Profile(measure_profile(demo_model(), options).profile);
    options.tensor_parallel = {1, 2};
    shared_profile_ = new Profile(measure_profile(demo_model(), options).profile);
    options.dtype = "bfloat16";
    narrow_profile_ = new Profile(measure_profile(demo_model(), options).profile);
  }
  static void TearDownTestSuite() {
    delete profile_;
    delete shared_profile_;
    delete narrow_profile_;
    profile_ = shared_profile_ = narrow_profile_ = nullptr;
  }

  static const Profile& profile_of(const MemoryCase& memory_case) {
    const bool shared = memory_case.tensor_parallel != std::vector<int>{1, 1};
    return memory_case.precision != at::kFloat ? *narrow_profile_
           : shared                            ? *shared_profile_
                                               : *profile_;
  }

  static tiny::Step make_step(const MemoryCase& memory_case) {
    tiny::Step step;
    step.model = demo_model();
    oracle::freeze(memory_case.frozen, step.model);
    step.plan = even_plan(step.model, memory_case.stages, 1, 6);
    for (std::size_t m = 0; m < step.plan.modules.size(); ++m) {
      ModulePlan& module = step.plan.modules[m];
      module.tensor_parallel = memory_case.tensor_parallel.at(m);
      for (const LayerRange& layers : module.stages) {
        const int every = memory_case.recompute_every;
        module.recompute.push_back(every > 0 ? (layers.end - layers.begin + every - 1) / every : 0);
      }
    }
    step.plan.limits.chunks = memory_case.chunks;
    const std::vector<SampleWork> work = demo_batch();
    step.costs = step_costs(step.model, step.plan, profile_of(memory_case), work);
    Rng rng(11);
    step.program = build_program(step.plan,
                                 oracle::random_assignment(rng, step.costs, step.plan, 1, 6),
                                 step.costs,
                                 memory_case.schedule);
    for (std::size_t s = 0; s < work.size(); ++s) {
      step.ids.push_back(concat("sample-", s));
      step.target_tokens += work[s].target_tokens;
    }
    return step;
  }

  static tiny::Result run(const tiny::Step& step, at::ScalarType precision) {
    ExecutorOptions options = tiny::seeded_options();
    options.measure_memory = true;
    options.stage.dtype = precision;
    return tiny::run_step(step, options, [&](int) {
      return std::make_unique<tiny::SyntheticData>(step.costs.work, kDemoPatch);
    });
  }

  static void expect_predicted(const MemoryCase& memory_case, double freed = 0) {
    const tiny::Step step = make_step(memory_case);
    const Timeline predicted = simulate(step.program, step.costs);
    const tiny::Result result = run(step, memory_case.precision);
    const RankPlaces places(step.plan);
    for (std::size_t rank = 0; rank < result.outcomes.size(); ++rank) {
      const RankPlace place = places.place_of(static_cast<int>(rank));
      const auto lane = static_cast<std::size_t>(place.lane);
      const auto expected = static_cast<double>(predicted.lanes[0][lane].peak_bytes);
      const auto measured = static_cast<double>(result.outcomes[rank].usage.peak_bytes);
      const auto working = static_cast<double>(result.outcomes[rank].working_bytes);
      std::cout << memory_case.schedule << " " << places.name_of(static_cast<int>(rank))
                << ": predicted " << expected / 1e6 << " MB, measured " << measured / 1e6 << " MB ("
                << 100 * (expected / measured - 1) << " %), at most " << working / 1e6
                << " MB within an operation\n";
      EXPECT_GE(expected / measured, 1 - kTolerance) << memory_case.schedule << " lane " << lane;
      EXPECT_LE(expected / measured, (1 + kTolerance) / (1 - freed))
          << memory_case.schedule << " lane " << lane;
      EXPECT_GE(working, measured);
    }
  }

  static Profile* profile_;
  static Profile* shared_profile_;  // of lanes of one rank and of two
  static Profile* narrow_profile_;  // the same in bfloat16
};
Profile* PeakMemory::profile_ = nullptr;
Profile* PeakMemory::shared_profile_ = nullptr;
Profile* PeakMemory::narrow_profile_ = nullptr;

TEST_F(PeakMemory, IsPredictedUnder1F1B) {
  at::set_num_threads(1);
  expect_predicted({"1f1b"});
}

TEST_F(PeakMemory, IsPredictedWithSplitBackwards) {
  at::set_num_threads(1);
  for (const char* schedule : {"zb-h1", "zb-h2", "entrain"}) {
    expect_predicted({schedule}, kFreedByInputHalf);
  }
}

TEST_F(PeakMemory, IsPredictedUnderGpipe) {
  at::set_num_threads(1);
  expect_predicted({"gpipe"});
}

TEST_F(PeakMemory, IsPredictedWithChunks) {
  at::set_num_threads(1);
  for (const char* schedule : {"1f1b", "gpipe"}) {
    expect_predicted({schedule, oracle::FrozenPattern::kNone, {2, 2}, 0, at::kFloat, true});
  }
  expect_predicted({"zb-h1", oracle::FrozenPattern::kNone, {2, 2}, 0, at::kFloat, true},
                   kFreedByInputHalf);
}

TEST_F(PeakMemory, IsPredictedOnTwoLanes) {
  at::set_num_threads(1);
  expect_predicted({"1f1b", oracle::FrozenPattern::kNone, {1, 1}});
}

TEST_F(PeakMemory, IsPredictedInBfloat16) {
  at::set_num_threads(1);
  MemoryCase narrow{"1f1b"};
  narrow.precision = at::kBFloat16;
  expect_predicted(narrow);
  narrow.schedule = "entrain";
  expect_predicted(narrow, kFreedByInputHalf);
}

class SharedLanesPeakMemory : public PeakMemory,
                              public testing::WithParamInterface<std::vector<int>> {};

TEST_P(SharedLanesPeakMemory, IsPredicted) {
  at::set_num_threads(1);
  MemoryCase shared{"1f1b"};
  shared.tensor_parallel = GetParam();
  expect_predicted(shared);
  shared.schedule = "gpipe";
  expect_predicted(shared);
  for (const char* schedule : {"zb-h1", "entrain"}) {
    shared.schedule = schedule;
    expect_predicted(shared, kFreedByInputHalf);
  }
  shared.schedule = "1f1b";
  shared.stages = {1, 1};
  expect_predicted(shared);
  shared.stages = {2, 2};
  shared.chunks = true;
  expect_predicted(shared);
  shared.chunks = false;
  shared.precision = at::kBFloat16;
  expect_predicted(shared);
}

INSTANTIATE_TEST_SUITE_P(ForBothModulesAndEither,
                         SharedLanesPeakMemory,
                         testing::Values(std::vector<int>{2, 2},
                                         std::vector<int>{1, 2},
                                         std::vector<int>{2, 1}));

// Each rank of a lane keeps its share, nothing whole.
TEST_F(PeakMemory, IsHalvedByASecondRank) {
  at::set_num_threads(1);
  for (const char* schedule : {"1f1b", "gpipe"}) {
    MemoryCase alone{schedule};
    const tiny::Result whole = run(make_step(alone), at::kFloat);
    alone.tensor_parallel = {2, 2};
    const tiny::Step step = make_step(alone);
    const tiny::Result shared = run(step, at::kFloat);
    const RankPlaces places(step.plan);
    for (std::size_t rank = 0; rank < shared.outcomes.size(); ++rank) {
      const auto lane = static_cast<std::size_t>(places.place_of(static_cast<int>(rank)).lane);
      const double share = static_cast<double>(shared.outcomes[rank].usage.peak_bytes) /
                           static_cast<double>(whole.outcomes[lane].usage.peak_bytes);
      std::cout << schedule << " " << places.name_of(static_cast<int>(rank)) << ": " << share
                << " of what a single rank keeps\n";
      EXPECT_NEAR(share, 0.5, 0.5 * kTolerance);
    }
  }
}

// What is kept between operations is less than without; while a layer runs again there is more,
// which the prediction counts.
class RecomputedPeakMemory : public PeakMemory,
                             public testing::WithParamInterface<std::pair<int, at::ScalarType>> {};

TEST_P(RecomputedPeakMemory, IsPredicted) {
  at::set_num_threads(1);
  const auto [every, precision] = GetParam();
  MemoryCase memory_case{"1f1b"};
  memory_case.precision = precision;
  const tiny::Result without = run(make_step(memory_case), precision);
  memory_case.recompute_every = every;
  const tiny::Step step = make_step(memory_case);
  const Timeline predicted = simulate(step.program, step.costs);
  const tiny::Result with = run(step, precision);
  for (std::size_t lane = 0; lane < with.outcomes.size(); ++lane) {
    const auto expected = static_cast<double>(predicted.lanes[0][lane].peak_bytes);
    const auto kept = static_cast<double>(with.outcomes[lane].usage.peak_bytes);
    const auto working = static_cast<double>(with.outcomes[lane].working_bytes);
    std::cout << "one of " << every << " recomputed, "
              << (precision == at::kFloat ? "float32" : "bfloat16") << ", lane " << lane
              << ": predicted " << expected / 1e6 << " MB, kept " << kept / 1e6 << " MB, at most "
              << working / 1e6 << " MB within an operation\n";
    EXPECT_LT(
        kept,
        (every == 1 ? 0.6 : 0.95) * static_cast<double>(without.outcomes[lane].usage.peak_bytes));
    EXPECT_GE(expected, kept * (1 - kTolerance));
    // An upper bound: where layers behind recomputed ones keep theirs, these are free by then.
    EXPECT_LE(
        expected,
        (1 + kTolerance) *
            (every == 1 ? working : static_cast<double>(without.outcomes[lane].usage.peak_bytes)));
  }
}

INSTANTIATE_TEST_SUITE_P(ForPoliciesAndPrecisions,
                         RecomputedPeakMemory,
                         testing::Values(std::pair(1, at::kFloat),
                                         std::pair(2, at::kFloat),
                                         std::pair(1, at::kBFloat16)));

// What families of Hugging Face models have.
struct Family {
  const char* name;
  void (*change)(EncoderSpec& vision, LlmSpec& llm);
};

void add_biases(EncoderSpec& vision) {
  vision.qkv_bias = vision.output_bias = vision.mlp_bias = true;
}

void make_qwen2_5(EncoderSpec& vision, LlmSpec& llm) {
  add_biases(vision);
  vision.rotary = RotaryLayout::kHalves;
  vision.window_size = 4 * kDemoPatch;
  vision.full_attention_layers = {1, 3};
  llm.qkv_bias = true;
  llm.mrope_sections = {8, 6, 6};
}

void make_vit(EncoderSpec& vision, LlmSpec& /*llm*/) {
  add_biases(vision);
  vision.norm = NormKind::kLayer;
  vision.packed_qkv = vision.gated_mlp = false;
  vision.activation = Activation::kGeluTanh;
  vision.table_side = 8;
  vision.patch_bias = true;
  vision.projector.norm_tokens = false;
}

void make_internvl(EncoderSpec& vision, LlmSpec& llm) {
  make_vit(vision, llm);
  vision.activation = Activation::kGelu;
  vision.layer_scale = true;
  vision.projector.norm_merged = true;
  llm.qk_norm = true;
}

void make_qwen3(EncoderSpec& vision, LlmSpec& llm) {
  make_vit(vision, llm);
  vision.packed_qkv = vision.table_interpolated = vision.projector.norm_tokens = true;
  vision.rotary = RotaryLayout::kHalves;
  vision.deepstack_layers = {0, 2};
  llm.deepstack = 2;
  llm.qk_norm = true;
  llm.mrope_sections = {8, 6, 6};
  llm.mrope_interleaved = true;
}

class FamilyPeakMemory : public testing::TestWithParam<Family> {};

TEST_P(FamilyPeakMemory, IsPredicted) {
  at::set_num_threads(1);
  ModelSpec model = demo_model();
  GetParam().change(model.encoders[0], model.llm);
  validate(model, "model");
  std::vector<SampleWork> work;
  for (int i = 0; i < 24; ++i) {
    const int images = i % 5 == 4 ? 0 : 1 + i % 2;
    work.push_back(tiny::sample_of(
        std::vector(static_cast<std::size_t>(images), std::pair(4, 4)), 50 + 3 * (i % 7), 4));
    for (SegmentWork& segment : work.back().segments[0]) {
      segment.window_pairs = window_pairs(segment.rows, segment.columns, 4);
    }
  }
  ProfileOptions options = quick_options(1024);
  options.repeats = 3;
  options.seconds = 5;
  const Profile profile = measure_profile(model, options).profile;
  for (const char* schedule : {"1f1b", "gpipe", "entrain"}) {
    tiny::Step step;
    step.model = model;
    step.plan = even_plan(model, {2, 3}, 1, 6);
    step.costs = step_costs(model, step.plan, profile, work);
    Rng rng(11);
    step.program = build_program(step.plan,
                                 oracle::random_assignment(rng, step.costs, step.plan, 1, 6),
                                 step.costs,
                                 schedule);
    for (std::size_t s = 0; s < work.size(); ++s) {
      step.ids.push_back(concat("sample-", s));
      step.target_tokens += work[s].target_tokens;
    }
    ExecutorOptions run = tiny::seeded_options();
    run.measure_memory = true;
    const tiny::Result result = tiny::run_step(
        step, run, [&](int) { return std::make_unique<tiny::SyntheticData>(work, kDemoPatch); });
    const Timeline predicted = simulate(step.program, step.costs);
    for (std::size_t lane = 0; lane < result.outcomes.size(); ++lane) {
      const double ratio = static_cast<double>(predicted.lanes[0][lane].peak_bytes) /
                           static_cast<double>(result.outcomes[lane].usage.peak_bytes);
      std::cout << GetParam().name << ", " << schedule << " lane " << lane << ": "
                << 100 * (ratio - 1) << " %\n";
      EXPECT_GE(ratio, 1 - kTolerance) << schedule << " lane " << lane;
      const double freed = schedule == std::string("entrain") ? kFreedByInputHalf : 0;
      EXPECT_LE(ratio, (1 + kTolerance) / (1 - freed)) << schedule << " lane " << lane;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of,
                         FamilyPeakMemory,
                         testing::Values(Family{"Qwen2.5-VL", make_qwen2_5},
                                         Family{"LLaVA", make_vit},
                                         Family{"InternVL", make_internvl},
                                         Family{"Qwen3-VL", make_qwen3}),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST_F(PeakMemory, IsNotMeasuredUnlessAskedFor) {
  at::set_num_threads(1);
  const tiny::Step step = make_step({"1f1b"});
  const tiny::Result result = tiny::run_step(step, tiny::seeded_options(), [&](int) {
    return std::make_unique<tiny::SyntheticData>(step.costs.work, kDemoPatch);
  });
  for (const StepOutcome& outcome : result.outcomes) {
    EXPECT_EQ(outcome.usage.peak_bytes, 0);
    EXPECT_EQ(outcome.working_bytes, 0);
  }
}

}  // namespace
}  // namespace entrain::engine
