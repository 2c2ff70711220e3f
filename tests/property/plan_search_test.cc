// The search for plans against simulating every configuration of small clusters.
#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Totals of every configuration that fits, sorted; checks on the way that no bound exceeds what
// simulation says and that the space lists what the obvious loops list.
std::vector<std::int64_t> simulate_all(const oracle::PlanCase& plan_case) {
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const std::vector<PlanConfig> configs = oracle::all_configs(plan_case, scorer.space().degrees());
  std::vector<PlanConfig> listed;
  for (const int replicas : scorer.space().replica_counts()) {
    scorer.space().for_each(
        replicas, nullptr, [&](const PlanConfig& config) { listed.push_back(config); });
  }
  EXPECT_EQ(listed.size(), configs.size());
  std::vector<std::int64_t> totals;
  for (const PlanConfig& config : configs) {
    EXPECT_EQ(std::count(listed.begin(), listed.end(), config),
              std::count(configs.begin(), configs.end(), config));
    const PlanBound bound = scorer.bounds().bound(config);
    if (bound.cause == BoundCause::kMemory) {
      continue;
    }
    PlanCandidate candidate = scorer.make_candidate(config);
    if (candidate.state != CandidateState::kNoFit) {
      scorer.simulate(candidate, kNever);
    }
    if (candidate.state != CandidateState::kSimulated) {
      continue;
    }
    EXPECT_LE(bound.ns, total_ns(candidate)) << describe(config, plan_case.model);
    std::vector<std::vector<LayerRange>> stages;
    for (const ModulePlan& module : candidate.plan.modules) {
      stages.push_back(module.stages);
    }
    for (std::size_t batch = 0; batch < candidate.steps.size(); ++batch) {
      EXPECT_LE(scorer.bounds().batch_bound(config, stages, batch), candidate.steps[batch])
          << describe(config, plan_case.model);
    }
    totals.push_back(total_ns(candidate));
  }
  std::sort(totals.begin(), totals.end());
  return totals;
}

TEST(PlanSearch, FindsTheBestOfAllPlansOfSmallClusters) {
  constexpr std::uint64_t kSeed = 23;
  Rng rng(kSeed);
  int with_plans = 0;
  int cut = 0;
  for (int i = 0; i < 400; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " case " << i << ": " << oracle::describe(plan_case));
    const std::vector<std::int64_t> expected = simulate_all(plan_case);
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult result = search_plans(request);
    ASSERT_TRUE(result.complete);
    ASSERT_EQ(result.fits(), !expected.empty()) << result.reason;
    if (!result.fits()) {
      EXPECT_FALSE(result.reason.empty());
      continue;
    }
    ++with_plans;
    cut += static_cast<int>(expected.size() - result.plans.size());
    const std::size_t ranked =
        std::min(expected.size(), static_cast<std::size_t>(request.runners_up) + 1);
    ASSERT_GE(result.plans.size(), ranked);
    for (std::size_t rank = 0; rank < ranked; ++rank) {
      ASSERT_EQ(total_ns(result.plans[rank]), expected[rank]) << "rank " << rank;
    }
    ASSERT_LE(result.lower_bound_ns, result.best().mean_ns);
    ASSERT_GE(result.dynamic_regret, 0.0);
  }
  EXPECT_GT(with_plans, 200);
  EXPECT_GT(cut, 1000);  // bounds did their work
}

}  // namespace
}  // namespace entrain
