#include "entrain/core/planner/lane_split.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/step/step.h"

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// Every layer kind of every module at the same rates, times a factor of the module's own.
Profile make_profile(const ModelSpec& model, const std::vector<double>& factor) {
  Profile profile = oracle::uniform_profile(model, {0, 100, 1000}, {0, 100, 1000}, {0, 100, 0});
  for (LayerProfile& entry : profile.layers) {
    int module = 0;
    while (module_name(model, module) != entry.module) {
      ++module;
    }
    for (CostCurve* curve : {&entry.forward, &entry.backward_input, &entry.backward_weight}) {
      curve->per_token_ns *= factor[static_cast<std::size_t>(module)];
    }
    entry.activation_bytes_per_token = 10;
  }
  return profile;
}

std::vector<SampleWork> make_batch(int encoders, int num_samples, std::uint64_t stream) {
  Rng rng(11, stream);
  std::vector<SampleWork> batch;
  for (int i = 0; i < num_samples; ++i) {
    SampleWork work;
    work.llm_tokens = 5 + static_cast<std::int64_t>(rng.below(20));
    work.target_tokens = 5;
    for (int e = 0; e < encoders; ++e) {
      const auto features = 1 + static_cast<std::int64_t>(rng.below(30));
      work.segments.push_back({{4 * features, 0, features}});
      work.llm_tokens += features;
    }
    batch.push_back(work);
  }
  return batch;
}

struct LaneSplitCase {
  LaneSplitCase(int encoders, int lanes, std::vector<double> factor, int encoder_layers = 4)
      : model(oracle::tiny_model(encoders, encoder_layers, 4)),
        profile(make_profile(model, factor)) {
    request.model = &model;
    request.profile = &profile;
    request.batches = {make_batch(encoders, 24, 1), make_batch(encoders, 24, 2)};
    request.lanes = lanes;
    request.replicas = 2;
    request.num_slots = 4;
    request.policy = "lpt-2d";
  }
  LaneSplitCase(const LaneSplitCase&) = delete;
  LaneSplitCase& operator=(const LaneSplitCase&) = delete;
  ModelSpec model;
  Profile profile;
  LaneSplitRequest request;
};

std::int64_t mean_step(const LaneSplitRequest& request, const Plan& plan) {
  std::int64_t sum = 0;
  for (std::size_t step = 0; step < request.batches.size(); ++step) {
    const StepCosts costs =
        step_costs(*request.model, plan, *request.profile, request.batches[step]);
    AssignRequest assign_request{.plan = &plan, .costs = &costs};
    assign_request.step = static_cast<std::int64_t>(step);
    sum += simulate_step(request.policy, assign_request).timeline.makespan.count();
  }
  return sum / static_cast<std::int64_t>(request.batches.size());
}

TEST(PlanLaneSplit, TriesEverySplitAndRanksThemBySimulation) {
  const LaneSplitCase instance(1, 5, {1.0, 1.0});
  const LaneSplitResult result = plan_lane_split(instance.request);
  ASSERT_TRUE(result.fits());
  ASSERT_EQ(result.splits.size(), 4U);
  std::vector<int> shares;
  for (const LaneSplit& split : result.splits) {
    shares.push_back(split.lanes_of[0]);
    EXPECT_EQ(split.lanes_of[0] + split.lanes_of[1], 5);
    EXPECT_EQ(split.plan.num_lanes(), 5);
    EXPECT_EQ(split.mean_ns, mean_step(instance.request, split.plan));
    EXPECT_GE(split.mean_ns, split.bound_ns);
    EXPECT_GT(split.bound_ns, 0);
    EXPECT_GE(split.mean_ns, result.splits.front().mean_ns);
  }
  std::sort(shares.begin(), shares.end());
  EXPECT_EQ(shares, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_DOUBLE_EQ(result.margin,
                   static_cast<double>(result.splits[1].mean_ns) /
                           static_cast<double>(result.splits[0].mean_ns) -
                       1);
}

// The cut by layers is the fastest of all cuts where stages decide alone: compare with all of them.
TEST(PlanLaneSplit, IsNearTheBestOfAllContiguousCuts) {
  for (const double factor : {0.3, 1.0, 3.0}) {
    const LaneSplitCase instance(1, 3, {1.0, factor});
    const LaneSplitResult result = plan_lane_split(instance.request);
    std::int64_t best = result.splits.front().mean_ns;
    Plan plan = result.best();
    for (int cut = 1; cut < 6; ++cut) {
      plan.modules[0].stages = {{0, cut}, {cut, 6}};
      plan.modules[1].stages = {{0, 6}};
      plan.lanes = default_lanes(plan.modules);
      best = std::min(best, mean_step(instance.request, plan));
      plan.modules[0].stages = {{0, 6}};
      plan.modules[1].stages = {{0, cut}, {cut, 6}};
      plan.lanes = default_lanes(plan.modules);
      best = std::min(best, mean_step(instance.request, plan));
    }
    EXPECT_LE(result.splits.front().mean_ns, best + best / 20) << factor;
  }
}

TEST(PlanLaneSplit, GivesTheHeavierModuleMoreLanes) {
  const LaneSplitCase vision(1, 6, {5.0, 1.0});
  EXPECT_GE(plan_lane_split(vision.request).splits.front().lanes_of[0], 4);
  const LaneSplitCase llm(1, 6, {0.1, 10.0});
  EXPECT_GE(plan_lane_split(llm.request).splits.front().lanes_of[1], 4);
}

TEST(PlanLaneSplit, PutsEverythingOnASingleLane) {
  const LaneSplitCase instance(2, 1, {1.0, 1.0, 1.0});
  const LaneSplitResult result = plan_lane_split(instance.request);
  ASSERT_TRUE(result.fits());
  EXPECT_EQ(result.splits.size(), 1U);
  EXPECT_EQ(result.best().lanes.size(), 1U);
  EXPECT_EQ(result.best().lanes[0].size(), 3U);
  EXPECT_EQ(result.margin, 0.0);
}

TEST(PlanLaneSplit, LetsEncodersShareLanes) {
  const LaneSplitCase instance(2, 2, {1.0, 1.0, 1.0});
  const LaneSplitResult result = plan_lane_split(instance.request);
  ASSERT_TRUE(result.fits());
  EXPECT_EQ(result.splits.size(), 1U);
  EXPECT_TRUE(result.splits[0].shared_encoders);
  EXPECT_EQ(result.best().lanes, (std::vector<std::vector<StageRef>>{{{0, 0}, {1, 0}}, {{2, 0}}}));
  const LaneSplitCase wider(2, 4, {1.0, 1.0, 1.0});
  EXPECT_EQ(plan_lane_split(wider.request).splits.size(), 6U);  // three of each kind
}

TEST(PlanLaneSplit, SaysWhyASplitHasTooFewLayers) {
  const LaneSplitCase instance(1, 8, {1.0, 1.0}, 1);  // three encoder layers, six LLM layers
  const LaneSplitResult result = plan_lane_split(instance.request);
  ASSERT_TRUE(result.fits());
  ASSERT_EQ(result.splits.size(), 7U);
  EXPECT_FALSE(result.splits.back().reason.empty());
  const auto has_reason = [](const LaneSplit& split) {
    return split.reason == "vision has 3 layers for 5 stages";
  };
  EXPECT_EQ(std::count_if(result.splits.begin(), result.splits.end(), has_reason), 1);
}

TEST(PlanLaneSplit, AnswersThatNothingFits) {
  for (const char* policy : {"lpt-2d", "entrain"}) {
    LaneSplitCase instance(1, 3, {1.0, 1.0});
    instance.request.policy = policy;
    instance.request.limits.bytes_per_lane = 10;
    const LaneSplitResult result = plan_lane_split(instance.request);
    EXPECT_FALSE(result.fits());
    EXPECT_NE(result.reason.find("none of 2 splits of 3 lanes fits"), std::string::npos)
        << result.reason;
    EXPECT_NE(to_string(result, instance.model).find("does not fit"), std::string::npos);
  }
}

TEST(PlanLaneSplit, RefusesNumbersOutOfRange) {
  const auto refuses = [](auto change) {
    LaneSplitCase instance(1, 3, {1.0, 1.0});
    change(instance.request);
    EXPECT_THROW(plan_lane_split(instance.request), InvalidInput);
  };
  refuses([](LaneSplitRequest& request) { request.lanes = 0; });
  refuses([](LaneSplitRequest& request) { request.lanes = 9; });
  refuses([](LaneSplitRequest& request) { request.replicas = 0; });
  refuses([](LaneSplitRequest& request) { request.replicas = 25; });
  refuses([](LaneSplitRequest& request) { request.num_slots = 0; });
  refuses([](LaneSplitRequest& request) { request.batches.clear(); });
  refuses([](LaneSplitRequest& request) { request.policy = "none"; });
  refuses([](LaneSplitRequest& request) { request.schedule = "none"; });
}

TEST(PlanLaneSplit, ShowsATable) {
  const LaneSplitCase instance(1, 3, {1.0, 1.0});
  const std::string text = to_string(plan_lane_split(instance.request), instance.model);
  EXPECT_NE(text.find("step time"), std::string::npos);
  EXPECT_NE(text.find("vision 2 + llm 1"), std::string::npos);
  EXPECT_NE(text.find("1.000"), std::string::npos);
}

}  // namespace
}  // namespace entrain
