// The search for plans against simulating every configuration of small clusters.
#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct AllPlans {
  std::vector<std::int64_t> totals;        // of every configuration that fits, sorted
  std::vector<std::int64_t> best_of_each;  // [batch]
  std::int64_t least_bound_ns = kNever;    // of those that memory does not forbid
};

// Checks on the way that no bound exceeds what simulation says and that the space lists what the
// obvious loops list.
AllPlans simulate_all(const oracle::PlanCase& plan_case) {
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const std::vector<PlanShape> configs = oracle::all_configs(plan_case, scorer.space().degrees());
  std::vector<PlanShape> listed;
  for (const int replicas : scorer.space().replica_counts()) {
    scorer.space().for_each(
        replicas, nullptr, [&](const PlanShape& config) { listed.push_back(config); });
  }
  EXPECT_EQ(listed.size(), configs.size());
  AllPlans all;
  all.best_of_each.assign(request.batches.size(), kNever);
  for (const PlanShape& config : configs) {
    EXPECT_EQ(std::count(listed.begin(), listed.end(), config),
              std::count(configs.begin(), configs.end(), config));
    const PlanBound bound = scorer.bounds().bound(config);
    if (bound.cause == BoundCause::kMemory) {
      continue;
    }
    all.least_bound_ns = std::min(all.least_bound_ns, bound.ns);
    const PlanCandidate candidate = scorer.score(config, kNever);
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
      all.best_of_each[batch] = std::min(all.best_of_each[batch], candidate.steps[batch]);
    }
    all.totals.push_back(total_ns(candidate));
  }
  std::sort(all.totals.begin(), all.totals.end());
  return all;
}

// The search of one case against all of its plans; nothing where no plan fits.
std::optional<PlanSearchResult> expect_best_of_all(const oracle::PlanCase& plan_case, int& cut) {
  const AllPlans all = simulate_all(plan_case);
  const std::vector<std::int64_t>& expected = all.totals;
  const PlanSearchRequest request = plan_case.request_of();
  PlanSearchResult result = search_plans(request);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.fits(), !expected.empty()) << result.reason;
  if (!result.fits() || expected.empty()) {
    EXPECT_FALSE(result.reason.empty());
    return std::nullopt;
  }
  cut += static_cast<int>(expected.size() - result.plans.size());
  const std::size_t ranked =
      std::min(expected.size(), static_cast<std::size_t>(request.runners_up) + 1);
  EXPECT_GE(result.plans.size(), ranked);
  for (std::size_t rank = 0; rank < std::min(ranked, result.plans.size()); ++rank) {
    EXPECT_EQ(total_ns(result.plans[rank]), expected[rank]) << "rank " << rank;
  }
  EXPECT_EQ(result.lower_bound_ns, all.least_bound_ns / std::ssize(request.batches));
  // Plans that were not simulated to the end could only make it larger.
  const auto each =
      static_cast<double>(std::accumulate(all.best_of_each.begin(), all.best_of_each.end(), 0LL));
  EXPECT_GE(result.dynamic_regret, 0.0);
  EXPECT_LE(result.dynamic_regret, static_cast<double>(expected.front()) / each - 1 + 1e-12);
  return result;
}

TEST(PlanSearch, FindsTheBestOfAllPlansOfSmallClusters) {
  constexpr std::uint64_t kSeed = 23;
  Rng rng(kSeed);
  int with_plans = 0;
  int cut = 0;
  for (int i = 0; i < oracle::case_count(400); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.request.space.shared_lanes = i % 2 == 0 ? SharedLanes::kNever : SharedLanes::kToo;
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " case " << i << ": " << oracle::describe(plan_case));
    with_plans += expect_best_of_all(plan_case, cut).has_value() ? 1 : 0;
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(with_plans, oracle::met_count(200));
  EXPECT_GT(cut, oracle::met_count(1000));  // bounds did their work
}

// The same where lanes host several stages of a module: bounds hold for these lanes too.
TEST(PlanSearch, FindsTheBestOfAllPlansWithVirtualStages) {
  constexpr std::uint64_t kSeed = 37;
  Rng rng(kSeed);
  int with_plans = 0;
  int several = 0;  // best plans
  int cut = 0;
  for (int i = 0; i < oracle::case_count(300); ++i) {
    oracle::PlanCase plan_case = oracle::make_virtual_case(rng, 6);
    plan_case.request.space.shared_lanes = i % 3 == 0 ? SharedLanes::kToo : SharedLanes::kNever;
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " case " << i << ": " << oracle::describe(plan_case));
    const std::optional<PlanSearchResult> result = expect_best_of_all(plan_case, cut);
    ASSERT_FALSE(testing::Test::HasFailure());
    with_plans += result.has_value() ? 1 : 0;
    several += result.has_value() && result->best().config.has_virtual_stages() ? 1 : 0;
  }
  std::printf("%d with plans, %d of virtual stages, %d cut\n", with_plans, several, cut);
  EXPECT_GT(with_plans, oracle::met_count(150));
  EXPECT_GT(several, oracle::met_count(30));
  EXPECT_GT(cut, oracle::met_count(300));
}

// Activations take most of the memory here, so that many configurations are plans with recomputed
// layers alone.
TEST(PlanSearch, FindsTheBestWhereMemoryAsksForRecomputation) {
  constexpr std::uint64_t kSeed = 29;
  Rng rng(kSeed);
  int with_plans = 0;
  int recomputing = 0;  // best plans
  int cut = 0;
  for (int i = 0; i < oracle::case_count(1200); ++i) {
    oracle::PlanCase plan_case = oracle::make_full_case(rng, 6);
    plan_case.request.space.shared_lanes = i % 2 == 0 ? SharedLanes::kToo : SharedLanes::kNever;
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " case " << i << ": " << oracle::describe(plan_case));
    const std::optional<PlanSearchResult> result = expect_best_of_all(plan_case, cut);
    ASSERT_FALSE(testing::Test::HasFailure());
    with_plans += result.has_value() ? 1 : 0;
    recomputing += result.has_value() && recomputes(result->best().plan) ? 1 : 0;
  }
  std::printf("%d with plans, %d recomputing, %d cut\n", with_plans, recomputing, cut);
  EXPECT_GT(with_plans, oracle::met_count(200));
  EXPECT_GT(recomputing, oracle::met_count(50));
  EXPECT_GT(cut, oracle::met_count(300));
}

}  // namespace
}  // namespace entrain
