#include "entrain/core/planner/single_sample_plan.h"

#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// 100 ns a token in each direction in transformer layers, nothing in the others.
Profile inner_layers_profile(const ModelSpec& model) {
  Profile profile = oracle::uniform_profile(model, {0, 100, 1000}, {0, 100, 1000}, {0, 100, 1000});
  for (LayerProfile& entry : profile.layers) {
    const bool inner =
        entry.kind == LayerKind::kEncoderTransformer || entry.kind == LayerKind::kDecoder;
    for (CostCurve* curve : {&entry.forward, &entry.backward_input, &entry.backward_weight}) {
      curve->per_token_ns = inner ? 100 : 0;
    }
  }
  return profile;
}

SampleWork make_sample(std::vector<std::int64_t> encoder_tokens, std::int64_t llm_tokens) {
  SampleWork work;
  for (const std::int64_t tokens : encoder_tokens) {
    work.segments.emplace_back();
    if (tokens > 0) {
      work.segments.back().push_back({tokens, 0, 1});
    }
  }
  work.llm_tokens = llm_tokens;
  work.target_tokens = 1;
  return work;
}

struct SingleSampleCase {
  SingleSampleCase(int encoders, int lanes)
      : model(oracle::tiny_model(encoders, 8, 8)), profile(inner_layers_profile(model)) {
    request.model = &model;
    request.profile = &profile;
    request.lanes = lanes;
    request.replicas = 4;
    request.num_slots = 32;
  }
  [[nodiscard]] std::vector<int> lanes_of(const SampleWork& sample) const {
    std::vector<int> result;
    for (const ModulePlan& module : single_sample_plan(request, sample).modules) {
      result.push_back(static_cast<int>(module.stages.size()));
    }
    return result;
  }
  ModelSpec model;
  Profile profile;
  SingleSampleRequest request;
};

TEST(SingleSamplePlan, FollowsTheSamplesOwnRatio) {
  const SingleSampleCase instance(1, 8);
  EXPECT_EQ(instance.lanes_of(make_sample({300}, 100)), (std::vector<int>{6, 2}));
  EXPECT_EQ(instance.lanes_of(make_sample({100}, 100)), (std::vector<int>{4, 4}));
  // 2.43 of 3.43 parts are 5.67 of 8 lanes.
  EXPECT_EQ(instance.lanes_of(make_sample({243}, 100)), (std::vector<int>{6, 2}));
  EXPECT_EQ(instance.lanes_of(make_sample({200}, 100)), (std::vector<int>{5, 3}));
}

TEST(SingleSamplePlan, GivesEveryModuleALane) {
  const SingleSampleCase one(1, 8);
  EXPECT_EQ(one.lanes_of(make_sample({0}, 100)), (std::vector<int>{1, 7}));
  EXPECT_EQ(one.lanes_of(make_sample({100'000}, 1)), (std::vector<int>{7, 1}));
  const SingleSampleCase two(2, 8);
  EXPECT_EQ(two.lanes_of(make_sample({300, 0}, 500)), (std::vector<int>{3, 1, 4}));
  EXPECT_EQ(two.lanes_of(make_sample({0, 0}, 500)), (std::vector<int>{1, 1, 6}));
}

TEST(SingleSamplePlan, GivesNoModuleMoreLanesThanLayers) {
  const SingleSampleCase instance(1, 14);
  EXPECT_EQ(instance.lanes_of(make_sample({100'000}, 1)), (std::vector<int>{10, 4}));
}

TEST(SingleSamplePlan, CutsLayersWhereTheSlowestStageIsFastest) {
  const SingleSampleCase instance(1, 8);
  const Plan plan = single_sample_plan(instance.request, make_sample({100}, 100));
  // Ten layers, the first and the last free: two transformer layers a stage.
  for (const ModulePlan& module : plan.modules) {
    for (const LayerRange& stage : module.stages) {
      const int inner = std::min(stage.end, 9) - std::max(stage.begin, 1);
      EXPECT_EQ(inner, 2);
    }
  }
  EXPECT_EQ(plan.num_lanes(), 8);
  EXPECT_EQ(plan.replicas, 4);
  EXPECT_EQ(plan.num_slots, 32);
  EXPECT_EQ(plan.policy, "disttrain");
}

TEST(SingleSamplePlan, PutsEverythingOnASingleLane) {
  const SingleSampleCase instance(2, 1);
  const Plan plan = single_sample_plan(instance.request, make_sample({3, 5}, 7));
  ASSERT_EQ(plan.num_lanes(), 1);
  EXPECT_EQ(plan.lanes[0], (std::vector<StageRef>{{0, 0}, {1, 0}, {2, 0}}));
}

TEST(SingleSamplePlan, RefusesLanesThatCannotBe) {
  const SingleSampleCase too_few(2, 2);
  EXPECT_THROW(single_sample_plan(too_few.request, make_sample({1, 1}, 1)), InvalidInput);
  const SingleSampleCase too_many(1, 21);
  EXPECT_THROW(single_sample_plan(too_many.request, make_sample({1}, 1)), InvalidInput);
}

TEST(FewSamplesPlan, FollowsTheRatioOfSums) {
  SingleSampleCase instance(1, 8);
  const std::vector<SampleWork> samples = {make_sample({300}, 100), make_sample({0}, 200)};
  const Plan plan = few_samples_plan(instance.request, samples);
  EXPECT_EQ(plan.modules[0].stages.size(), 4U);  // 300 of 600
  EXPECT_EQ(few_samples_plan(instance.request, std::span(samples).first(1)),
            single_sample_plan(instance.request, samples[0]));
}

TEST(FewSamplesPlan, TakesTheWantedDegrees) {
  SingleSampleCase instance(1, 8);
  for (LayerProfile& layer : instance.profile.layers) {
    layer.tensor_parallel = 2;
  }
  instance.request.tensor_parallel = 2;
  const Plan plan = few_samples_plan(instance.request, std::vector{make_sample({300}, 100)});
  for (const ModulePlan& module : plan.modules) {
    EXPECT_EQ(module.tensor_parallel, 2);
  }
}

TEST(EvenLayersPlan, LooksAtNumbersOfLayersAlone) {
  SingleSampleCase instance(2, 6);
  instance.request.profile = nullptr;
  const Plan plan = even_layers_plan(instance.request);
  for (const ModulePlan& module : plan.modules) {
    EXPECT_EQ(module.stages, (std::vector<LayerRange>{{0, 5}, {5, 10}}));
  }
  instance.request.lanes = 2;
  EXPECT_THROW(even_layers_plan(instance.request), InvalidInput);
}

TEST(SingleSamplePlans, CountsDrawsOfTheSamePlan) {
  const SingleSampleCase instance(1, 8);
  const std::vector<SampleWork> draws = {
      make_sample({100}, 100), make_sample({0}, 50), make_sample({7}, 7), make_sample({0}, 3)};
  const std::vector<CountedPlan> plans = single_sample_plans(instance.request, draws);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].count, 2);
  EXPECT_EQ(plans[0].plan, single_sample_plan(instance.request, draws[2]));
  EXPECT_EQ(plans[1].count, 2);
  EXPECT_EQ(plans[1].plan, single_sample_plan(instance.request, draws[1]));
}

TEST(SingleSamplePlan, RefusesNoReplicasOrNoSlots) {
  SingleSampleCase instance(1, 4);
  instance.request.replicas = 0;
  EXPECT_THROW(even_layers_plan(instance.request), InvalidInput);
  instance.request.replicas = 1;
  instance.request.num_slots = 0;
  EXPECT_THROW(even_layers_plan(instance.request), InvalidInput);
  instance.request.num_slots = 1;
  EXPECT_NO_THROW(even_layers_plan(instance.request));
}

}  // namespace
}  // namespace entrain
