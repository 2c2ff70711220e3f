#include "entrain/core/planner/lane_split.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/step/step.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shaped_plans.h"
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
    shares.push_back(split.shape.modules[0].stages);
    EXPECT_EQ(split.shape.modules[0].stages + split.shape.modules[1].stages, 5);
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
  EXPECT_GE(plan_lane_split(vision.request).splits.front().shape.modules[0].stages, 4);
  const LaneSplitCase llm(1, 6, {0.1, 10.0});
  EXPECT_GE(plan_lane_split(llm.request).splits.front().shape.modules[1].stages, 4);
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
  EXPECT_EQ(result.splits[0].shape.layout, ModuleLayout::kSharedEncoders);
  EXPECT_EQ(result.best().lanes, (std::vector<std::vector<StageRef>>{{{0, 0}, {1, 0}}, {{2, 0}}}));
  const LaneSplitCase wider(2, 4, {1.0, 1.0, 1.0});
  EXPECT_EQ(plan_lane_split(wider.request).splits.size(), 6U);  // three of each kind
}

// The best of up to `most` virtual stages of each of two modules by the obvious loops.
std::int64_t best_of_all(const LaneSplitRequest& request, int most, bool with_one) {
  const LayerTimes layer_ns = [&] {
    const auto times_of = [&](const std::vector<SampleWork>& batch) {
      const Plan plan = layer_plan(*request.model);
      return layer_times(step_costs(*request.model, plan, *request.profile, batch), 8);
    };
    LayerTimes sum = times_of(request.batches[0]);
    const LayerTimes second = times_of(request.batches[1]);
    for (std::size_t module = 0; module < sum.size(); ++module) {
      for (std::size_t layer = 0; layer < sum[module].size(); ++layer) {
        sum[module][layer] += second[module][layer];
      }
    }
    return sum;
  }();
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (int lanes = 1; lanes < request.lanes; ++lanes) {
    for (int first = 1; first <= most; ++first) {
      for (int second = 1; second <= most; ++second) {
        const bool several = first > 1 || second > 1;
        if (lanes * first > num_layers(*request.model, 0) ||
            (request.lanes - lanes) * second > num_layers(*request.model, 1) ||
            (!several && !with_one)) {
          continue;
        }
        Plan plan = oracle::interleaved_plan(*request.model,
                                             layer_ns,
                                             {lanes, request.lanes - lanes},
                                             {first, second},
                                             request.replicas,
                                             request.num_slots);
        plan.schedule = request.schedule;
        plan.policy = request.policy;
        best = std::min(best, mean_step(request, plan));
      }
    }
  }
  return best;
}

TEST(PlanLaneSplit, FindsTheBestVirtualStagesOfAll) {
  int several = 0;
  int different = 0;  // numbers of virtual stages
  int slower = 0;
  for (const double factor : {0.3, 1.0, 3.0}) {
    for (const char* schedule : {"1f1b", "entrain"}) {
      LaneSplitCase instance(1, 4, {1.0, factor});
      LaneSplitRequest& request = instance.request;
      request.virtual_stages = kAutoVirtualStages;
      request.schedule = schedule;
      const LaneSplitResult result = plan_lane_split(request);
      EXPECT_EQ(result.splits.front().mean_ns, best_of_all(request, 6, true));
      several += result.splits.front().shape.has_virtual_stages() ? 1 : 0;
      ASSERT_NE(result.best_of(true), nullptr);
      EXPECT_EQ(result.best_of(true)->plan.schedule, schedule);
      slower += static_cast<int>(std::count_if(result.splits.begin(),
                                               result.splits.end(),
                                               [](const LaneSplit& of) { return of.slower; }));
      const std::vector<ModuleShape>& modules = result.best_of(true)->shape.modules;
      different += modules[0].virtual_stages == modules[1].virtual_stages ? 0 : 1;
      const std::string text = to_string(result, instance.model);
      EXPECT_NE(text.find(" virtual stages: "), std::string::npos) << text;
      request.schedule = "interleaved";
      EXPECT_EQ(plan_lane_split(request).splits.front().mean_ns, best_of_all(request, 6, false));
    }
  }
  EXPECT_GT(several, 0);
  EXPECT_GT(different, 0);
  EXPECT_GT(slower, 0) << "some have to be left out by their bounds";
}

TEST(PlanLaneSplit, WrapsEveryModuleAroundItsLanes) {
  LaneSplitCase instance(1, 4, {1.0, 1.0});
  instance.request.virtual_stages = 2;
  instance.request.schedule = "interleaved";
  const LaneSplitResult result = plan_lane_split(instance.request);
  ASSERT_TRUE(result.fits());
  ASSERT_EQ(result.splits.size(), 3U);
  for (const LaneSplit& split : result.splits) {
    EXPECT_EQ(split.plan.schedule, "interleaved");
    int first = 0;
    for (int module = 0; module < 2; ++module) {
      const int lanes = split.shape.modules[static_cast<std::size_t>(module)].stages;
      ASSERT_EQ(std::ssize(split.plan.modules[static_cast<std::size_t>(module)].stages), 2 * lanes);
      for (int lane = 0; lane < lanes; ++lane) {
        const std::vector<StageRef> expected = {{module, lane}, {module, lane + lanes}};
        EXPECT_EQ(split.plan.lanes[static_cast<std::size_t>(first + lane)], expected);
      }
      first += lanes;
    }
  }
  EXPECT_NE(to_string(result, instance.model).find("vision 2x2 + llm 2x2"), std::string::npos);
}

TEST(PlanLaneSplit, SharesLanesAmongAllModules) {
  for (const char* schedule : {"dip", "entrain"}) {
    LaneSplitCase instance(2, 3, {1.0, 1.0, 1.0});
    instance.request.shared_lanes = SharedLanes::kOnly;
    instance.request.schedule = schedule;
    const LaneSplitResult result = plan_lane_split(instance.request);
    ASSERT_TRUE(result.fits());
    EXPECT_EQ(result.splits.size(), 1U);
    EXPECT_EQ(result.best().schedule, schedule);
    ASSERT_EQ(result.best().num_lanes(), 3);
    for (int lane = 0; lane < 3; ++lane) {
      const std::vector<StageRef> expected = {{0, lane}, {1, lane}, {2, lane}};
      EXPECT_EQ(result.best().lanes[static_cast<std::size_t>(lane)], expected);
    }
    EXPECT_EQ(result.splits.front().mean_ns, mean_step(instance.request, result.best()));
  }
}

// Where modules share lanes beside those with their own, the faster of both is the best.
TEST(PlanLaneSplit, TakesSharedLanesWhereTheyAreFaster) {
  int shared = 0;
  for (const int lanes : {2, 3, 4}) {
    LaneSplitCase instance(1, lanes, {1.0, 1.0});
    instance.request.schedule = "1f1b";
    const LaneSplitResult apart = plan_lane_split(instance.request);
    instance.request.shared_lanes = SharedLanes::kOnly;
    const LaneSplitResult only = plan_lane_split(instance.request);
    instance.request.shared_lanes = SharedLanes::kToo;
    const LaneSplitResult both = plan_lane_split(instance.request);
    ASSERT_TRUE(apart.fits() && only.fits() && both.fits());
    EXPECT_EQ(both.splits.size(), apart.splits.size() + 1);
    EXPECT_EQ(both.splits.front().mean_ns,
              std::min(apart.splits.front().mean_ns, only.splits.front().mean_ns));
    shared += both.best().lanes.front().size() == 2 ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
  EXPECT_LT(shared, 3);
}

// Between what the leanest and the fastest plan hold: the fastest that fits is taken.
TEST(PlanLaneSplit, KeepsTheMemoryLimitWithVirtualStages) {
  LaneSplitCase instance(1, 4, {1.0, 1.0});
  instance.request.virtual_stages = kAutoVirtualStages;
  instance.request.schedule = "interleaved";
  const LaneSplitResult free = plan_lane_split(instance.request);
  ASSERT_TRUE(free.fits());
  std::int64_t least = free.splits.front().peak_bytes;
  for (const LaneSplit& split : free.splits) {
    least = split.reason.empty() ? std::min(least, split.peak_bytes) : least;
  }
  ASSERT_LT(least, free.splits.front().peak_bytes);
  instance.request.limits.bytes_per_lane = free.splits.front().peak_bytes - 1;
  const LaneSplitResult limited = plan_lane_split(instance.request);
  ASSERT_TRUE(limited.fits());
  EXPECT_LT(limited.splits.front().peak_bytes, free.splits.front().peak_bytes);
  EXPECT_GT(limited.splits.front().mean_ns, free.splits.front().mean_ns);
  EXPECT_NE(limited.splits.back().reason, "");
}

TEST(PlanLaneSplit, SaysHowManyVirtualStagesLayersAllow) {
  const auto expect_reason = [](int lanes, int stages, const char* schedule, const char* words) {
    LaneSplitCase instance(1, lanes, {1.0, 1.0});
    instance.request.virtual_stages = stages;
    instance.request.schedule = schedule;
    const std::string message =
        oracle::error_of<InvalidInput>([&] { plan_lane_split(instance.request); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect_reason(4, 4, "interleaved", "on 4 lanes the layers allow 3 at most");
  expect_reason(3, 4, "1f1b", "on 3 lanes the layers allow 3 at most");
  expect_reason(1, 2, "1f1b", "1 lane given for 2 modules");
  expect_reason(4, 1, "interleaved", "needs lanes that host several stages");
  expect_reason(4, 2, "dip", "virtual stages need lanes of a module's own");
  expect_reason(1, kAutoVirtualStages, "interleaved", "no module has lanes of its own");
  expect_reason(4, -1, "1f1b", "-1 virtual stages");
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
