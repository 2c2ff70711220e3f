#include "entrain/engine/train/drift_watch.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/planner/lane_shares.h"

namespace entrain::engine {
namespace {

ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 6;
  vision.hidden = 64;
  vision.num_heads = 4;
  vision.intermediate = 128;
  vision.min_pixels = 784;
  vision.max_pixels = 1'000'000;
  model.encoders = {vision};
  model.llm.num_layers = 6;
  model.llm.hidden = 64;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 4;
  model.llm.intermediate = 128;
  model.llm.vocab_size = 264;
  return model;
}

// Samples of one image, with sides around `side`, and some text.
std::vector<SampleWork> samples_of(const ModelSpec& model, int side, int count) {
  Rng rng(3, static_cast<std::uint64_t>(side));
  std::vector<SampleSizes> samples;
  for (int i = 0; i < count; ++i) {
    SampleSizes sizes;
    sizes.id = "s";
    const auto draw = [&] {
      return side / 2 + static_cast<int>(rng.below(static_cast<std::uint64_t>(side)));
    };
    sizes.images.push_back({draw(), draw()});
    sizes.prompt_tokens = static_cast<std::int64_t>(100 + rng.below(400));
    sizes.response_tokens = static_cast<std::int64_t>(1 + rng.below(50));
    samples.push_back(sizes);
  }
  return batch_work(model, samples);
}

constexpr int kSide = 160;
constexpr int kBatch = 32;

// Six lanes, split as the work of the run's samples asks for.
RunSetup watched_run() {
  RunSetup setup;
  setup.model = small_model();
  setup.profile = analytic_profile(setup.model, device_model("cpu-2core"));
  setup.train.work = samples_of(setup.model, kSide, 500);
  setup.config.plan.profile = "profile.json";
  setup.config.plan.file = "plan.json";
  setup.config.model_file = "model.toml";
  setup.config.data.train = "train.csv";
  setup.config.data.global_batch = kBatch;
  const std::vector<int> split =
      share_lanes(total_work(work_times(setup.model, setup.profile, setup.train.work)), 6);
  setup.plan = even_plan(setup.model, split, 1, 8);
  return setup;
}

// Costs of one step that draws from `samples`.
StepCosts draw_step(const RunSetup& setup, const std::vector<SampleWork>& samples, Rng& rng) {
  std::vector<SampleWork> batch;
  for (int i = 0; i < kBatch; ++i) {
    batch.push_back(samples[rng.below(samples.size())]);
  }
  return step_costs(setup.model, setup.plan, setup.profile, batch);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST(DriftWatch, IsQuietOnTheWorkThatThePlanWasMadeFor) {
  const RunSetup setup = watched_run();
  std::optional<DriftWatch> watch = DriftWatch::of(setup);
  ASSERT_TRUE(watch.has_value());
  EXPECT_EQ(watch->note(), "");
  Rng rng(1);
  DriftState state;
  for (int step = 0; step < 500; ++step) {
    state = watch->observe(draw_step(setup, setup.train.work, rng));
    ASSERT_EQ(state.warning, "") << step;
    ASSERT_FALSE(state.left) << step;
  }
  ASSERT_EQ(state.shares.size(), 2U);
  EXPECT_NEAR(state.shares[0] + state.shares[1], 6, 1e-9);
}

TEST(DriftWatch, WarnsOnceWhenTheRatioShifts) {
  const RunSetup setup = watched_run();
  std::optional<DriftWatch> watch = DriftWatch::of(setup);
  ASSERT_TRUE(watch.has_value());
  const std::vector<SampleWork> larger = samples_of(setup.model, 3 * kSide, 500);
  Rng rng(2);
  for (int step = 0; step < 50; ++step) {
    ASSERT_EQ(watch->observe(draw_step(setup, setup.train.work, rng)).warning, "");
  }
  std::vector<std::string> warnings;
  int first = 0;
  bool left = false;
  for (int step = 51; step <= 150; ++step) {
    const DriftState state = watch->observe(draw_step(setup, larger, rng));
    if (!state.warning.empty()) {
      warnings.push_back(state.warning);
      first = step;
    }
    left = state.left;
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(left);
  EXPECT_LE(first, 80);
  const std::size_t vision = setup.plan.modules[0].stages.size();
  expect_parts(warnings[0],
               {concat("after ", first, " steps"),
                concat("(vision ", vision, ", llm ", 6 - vision, ")"),
                concat("mean of the last ", first - 50, " steps"),
                concat("fits ", vision - 1, ".50 to ", vision, ".50"),
                "vision needs",
                "entrain plan --lanes 6 --index train.csv --model model.toml --profile "
                "profile.json --global-batch 32 -o plan.json"});
}

// The run's data against those of the plan: what a run meets that plan.index names.
TEST(DriftWatch, ComparesWithTheSamplesOfThePlan) {
  RunSetup setup = watched_run();
  setup.planned = setup.train.work;
  setup.train.work = samples_of(setup.model, 3 * kSide, 500);
  std::optional<DriftWatch> watch = DriftWatch::of(setup);
  ASSERT_TRUE(watch.has_value());
  EXPECT_EQ(watch->note(), "");
  Rng rng(2);
  bool left = false;
  for (int step = 0; step < 50; ++step) {
    left = watch->observe(draw_step(setup, setup.train.work, rng)).left;
  }
  EXPECT_TRUE(left);
}

// A plan that simulation preferred to what its own data round to is no drift.
TEST(DriftWatch, SaysWhichPlanItCannotWatchWhole) {
  RunSetup setup = watched_run();
  const int vision = static_cast<int>(setup.plan.modules[0].stages.size());
  setup.plan = even_plan(setup.model, {vision - 1, 7 - vision}, 1, 8);
  std::optional<DriftWatch> watch = DriftWatch::of(setup);
  ASSERT_TRUE(watch.has_value());
  expect_parts(watch->note(),
               {concat("keeps its split, vision ", vision - 1, ", llm ", 7 - vision),
                concat("rounds to vision ", vision, ", llm ", 6 - vision),
                "plan.index"});
  Rng rng(1);
  for (int step = 0; step < 200; ++step) {
    ASSERT_FALSE(watch->observe(draw_step(setup, setup.train.work, rng)).left) << step;
  }
}

TEST(DriftWatch, KeepsStillWhereThereIsNothingToLeave) {
  const RunSetup watched = watched_run();
  RunSetup setup = watched;
  setup.config.plan.profile.clear();
  EXPECT_FALSE(DriftWatch::of(setup).has_value()) << "no profile";
  setup = watched;
  std::vector<StageRef> all;
  for (const auto& lane : setup.plan.lanes) {
    all.insert(all.end(), lane.begin(), lane.end());
  }
  setup.plan.lanes = {all};
  EXPECT_FALSE(DriftWatch::of(setup).has_value()) << "a single lane";
  setup = watched;
  setup.plan = even_plan(setup.model, {1, 1}, 1, 8);
  EXPECT_FALSE(DriftWatch::of(setup).has_value()) << "one lane a module";
}

TEST(ShareRange, EndsWhereRoundingJumps) {
  ShareRange range = share_range({2, 2}, {1.7, 2.3}, 0, 1);
  EXPECT_NEAR(range.least, 1.5, 1e-12);
  EXPECT_NEAR(range.most, 2.5, 1e-12);
  range = share_range({1, 3}, {1.2, 2.8}, 0, 1);
  EXPECT_NEAR(range.least, 0, 1e-12) << "a module keeps its only device";
  EXPECT_NEAR(range.most, 1.5, 1e-12);
  // Beside a third module at 4.4 of 16, as the region itself has it.
  range = share_range({7, 4, 5}, {7.2, 4.4, 4.4}, 0, 1);
  EXPECT_NEAR(range.least, 6.8, 1e-12);
  EXPECT_NEAR(range.most, 7.8, 1e-12);
  const SplitRegion region = split_region(std::vector<int>{7, 4, 5});
  for (const auto& [share, inside] : std::vector<std::pair<std::int64_t, bool>>{
           {6'790, false}, {6'810, true}, {7'790, true}, {7'810, false}}) {
    const std::vector<std::int64_t> work = {share, 11'600 - share, 4'400};
    bool within = true;
    for (const SplitBoundary& boundary : region.boundaries) {
      within = within && (boundary.gains + boundary.loses != 1 || boundary.value(work) <= 0);
    }
    EXPECT_EQ(within, inside) << share;
  }
}

}  // namespace
}  // namespace entrain::engine
