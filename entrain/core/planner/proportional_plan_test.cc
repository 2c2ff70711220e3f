#include "entrain/core/planner/proportional_plan.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Two modules on one device a lane, without launches; vision's layers cost `ratio` times the LLM's.
oracle::PlanCase make_ratio_case(double ratio, int devices) {
  Rng rng(71);
  oracle::PlanCase result = oracle::make_plan_case(rng, 1);
  while (result.model.num_modules() != 2) {
    result = oracle::make_plan_case(rng, 1);
  }
  oracle::freeze(oracle::FrozenPattern::kNone, result.model);
  result.model.encoders[0].num_layers = 8;
  result.model.llm.num_layers = 8;
  result.cluster = {};
  result.cluster.devices_per_node = devices;
  std::erase_if(result.profile.layers, [](const LayerProfile& layer) {
    return layer.tensor_parallel * layer.context_parallel > 1;
  });
  for (LayerProfile& layer : result.profile.layers) {
    const double rate = layer.module == "llm" ? 1000 : 1000 * ratio;
    layer.forward = {0, rate, 0, 0};
    layer.backward_input = {0, rate, 0, 0};
    layer.backward_weight = {0, rate, 0, 0};
  }
  SampleWork sample;
  sample.llm_tokens = 10;
  sample.target_tokens = 10;
  sample.segments = {{{10, 100, 5}}};
  result.request.batches = {std::vector<SampleWork>(8, sample)};
  result.request.space.replicas = 1;
  result.request.space.microbatches = {2};
  return result;
}

TEST(ProportionalPlan, SharesDevicesByWork) {
  const oracle::PlanCase even = make_ratio_case(1, 8);
  const FormulaPlan plan = proportional_plan(even.request_of());
  ASSERT_TRUE(plan.fits());
  EXPECT_EQ(plan.config.modules[0].stages, 4);
  EXPECT_EQ(plan.config.modules[1].stages, 4);
  const oracle::PlanCase heavy = make_ratio_case(3, 8);
  EXPECT_EQ(proportional_plan(heavy.request_of()).config.modules[0].stages, 6);
}

// Four slots of two equal samples on lanes of equal layers: T = Σ τ + 3 · max τ.
TEST(ProportionalPlan, GivesTheFormulasTime) {
  const oracle::PlanCase plan_case = make_ratio_case(1, 4);
  const FormulaPlan plan = proportional_plan(plan_case.request_of());
  ASSERT_TRUE(plan.fits());
  EXPECT_EQ(plan.plan.num_slots, 4);
  // Ten layers a module in two stages of five; a layer takes 3 · 1,000 · 10 tokens · 2 samples, but
  // for the first of the encoder, which has no input gradient.
  EXPECT_NEAR(static_cast<double>(plan.formula_ns), (4 + 3) * 5 * 60'000 - 20'000, 1000);
}

TEST(ProportionalPlan, SaysWhyThereIsNone) {
  oracle::PlanCase plan_case = make_ratio_case(1, 4);
  plan_case.cluster.memory_bytes = 1;
  const FormulaPlan plan = proportional_plan(plan_case.request_of());
  EXPECT_FALSE(plan.fits());
  EXPECT_NE(plan.reason.find("short"), std::string::npos) << plan.reason;
}

}  // namespace
}  // namespace entrain
