#include "entrain/core/planner/dynamic_regret.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

TEST(DynamicRegret, LiesBetweenNothingAndItsBound) {
  constexpr std::uint64_t kSeed = 73;
  Rng rng(kSeed);
  int batches = 0;
  bool some = false;
  for (int i = 0; i < 40; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 6);
    plan_case.cluster.memory_bytes = 0;
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult found = search_plans(request);
    ASSERT_TRUE(found.fits());
    int calls = 0;
    const DynamicRegret regret =
        dynamic_regret(request, found.best().plan, [&calls](int) { ++calls; });
    EXPECT_EQ(regret.batches, static_cast<int>(request.batches.size()));
    EXPECT_EQ(calls, regret.batches);
    EXPECT_TRUE(regret.complete);
    EXPECT_EQ(regret.static_ns, found.best().mean_ns);
    EXPECT_LE(regret.dynamic_ns, regret.static_ns) << "seed " << kSeed << " case " << i;
    EXPECT_LE(regret.bound_ns, regret.dynamic_ns);
    EXPECT_LE(regret.regret(), regret.most());
    batches += regret.batches;
    some = some || regret.regret() > 0;
    if (regret.batches == 1) {
      EXPECT_EQ(regret.regret(), 0.0);  // the plan was made for that very batch
    }
  }
  EXPECT_GT(batches, 40);
  EXPECT_TRUE(some);
}

TEST(DynamicRegret, IsCompleteOnlyIfEverySearchWas) {
  Rng rng(74);
  int incomplete = 0;
  for (int i = 0; i < 40; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 6);
    plan_case.cluster.memory_bytes = 0;
    PlanSearchRequest request = plan_case.request_of();
    const Plan plan = search_plans(request).best().plan;
    request.most_simulations = 1;
    const DynamicRegret regret = dynamic_regret(request, plan, {});
    bool complete = true;
    for (std::size_t batch = 0; batch < request.batches.size(); ++batch) {
      PlanSearchRequest one = request;
      one.batches = {request.batches[batch]};
      one.first_step += static_cast<std::int64_t>(batch);
      one.runners_up = 0;
      complete = complete && search_plans(one).complete;
    }
    EXPECT_EQ(regret.complete, complete) << "case " << i;
    incomplete += complete ? 0 : 1;
  }
  EXPECT_GT(incomplete, 0);
}

}  // namespace
}  // namespace entrain
