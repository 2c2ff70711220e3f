#include "entrain/core/planner/memory_reason.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

TEST(MemoryReason, NamesModuleStageAndBytes) {
  Rng rng(47);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
  plan_case.request.limits.chunks = false;
  plan_case.cluster.memory_bytes = 1;
  const PlanSearchResult result = search_plans(plan_case.request_of());
  ASSERT_FALSE(result.fits());
  for (const char* word :
       {"misses least", "stage ", "short (", " bytes)", "what would fit: devices of"}) {
    EXPECT_NE(result.reason.find(word), std::string::npos) << result.reason;
  }
  EXPECT_EQ(result.lower_bound_ns, 0);
}

// One byte more than what is short is enough for the module that is named.
TEST(MemoryReason, CountsTheBytesExactly) {
  Rng rng(53);
  for (int i = 0; i < 30; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 1);
    plan_case.request.limits.chunks = false;
    plan_case.request.policy = "sequential";
    plan_case.cluster.memory_bytes = 1;
    const PlanSearchRequest request = plan_case.request_of();
    const PlanScorer scorer(request);
    std::int64_t most = 0;
    for (int module = 0; module < plan_case.model.num_modules(); ++module) {
      most = std::max(most, scorer.bounds().shortage(1, module, {{1, 1}, 1}).missing_bytes);
    }
    const std::string reason = memory_reason(scorer, request, {});
    EXPECT_NE(reason.find("(" + std::to_string(most) + " bytes)"), std::string::npos) << reason;
  }
}

TEST(MemoryReason, TellsOfTooFewDevices) {
  Rng rng(59);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 1);
  plan_case.cluster = {};
  plan_case.cluster.name = "small";
  plan_case.cluster.devices_per_node = 2;
  std::erase_if(plan_case.profile.layers, [](const LayerProfile& layer) {
    return layer.tensor_parallel * layer.context_parallel > 1;
  });
  for (LayerProfile& layer : plan_case.profile.layers) {
    layer.tensor_parallel = 2;
    layer.context_parallel = 2;
  }
  const PlanSearchResult result = search_plans(plan_case.request_of());
  ASSERT_FALSE(result.fits());
  EXPECT_NE(result.reason.find("'small' has 2 devices"), std::string::npos) << result.reason;
}

}  // namespace
}  // namespace entrain
