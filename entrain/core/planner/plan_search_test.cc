// The proof that nothing better is lost is tests/property/plan_search_test.cc.
#include "entrain/core/planner/plan_search.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/plan_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Four devices, three batches, no memory limit, two modules.
oracle::PlanCase make_search_case() {
  Rng rng(43);
  oracle::PlanCase result = oracle::make_plan_case(rng, 8);
  while (result.request.batches.size() != 3 || result.cluster.memory_bytes != 0 ||
         result.cluster.num_nodes * result.cluster.devices_per_node < 6 ||
         result.model.num_modules() != 2) {
    result = oracle::make_plan_case(rng, 8);
  }
  return result;
}

TEST(SearchPlans, RanksPlansAndCertifiesTheBest) {
  const oracle::PlanCase plan_case = make_search_case();
  const PlanSearchResult result = search_plans(plan_case.request_of());
  ASSERT_TRUE(result.fits());
  EXPECT_TRUE(result.complete);
  EXPECT_GT(result.configurations, 0);
  EXPECT_GE(result.shapes, result.configurations / 100);
  for (std::size_t i = 1; i < result.plans.size(); ++i) {
    EXPECT_LE(result.plans[i - 1].mean_ns, result.plans[i].mean_ns);
  }
  const PlanCertificate& certificate = result.best().plan.certificate;
  EXPECT_DOUBLE_EQ(certificate.simulated_s, static_cast<double>(result.best().mean_ns) * 1e-9);
  EXPECT_GE(certificate.ratio, 1.0);
  EXPECT_EQ(certificate.dynamic_regret, result.dynamic_regret);
  EXPECT_LE(result.lower_bound_ns, result.best().bound_ns);
}

TEST(SearchPlans, SaysWhatABudgetHasLeft) {
  const oracle::PlanCase plan_case = make_search_case();
  PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult whole = search_plans(request);
  request.most_simulations = 1;
  const PlanSearchResult little = search_plans(request);
  ASSERT_TRUE(little.fits());
  EXPECT_LE(little.simulated_steps, 3);
  EXPECT_FALSE(little.complete);
  EXPECT_GT(little.left, 0);
  // Whatever was left cannot be faster than its bound says.
  EXPECT_LE(std::min(little.left_bound_ns, little.best().mean_ns), whole.best().mean_ns);
  EXPECT_EQ(little.lower_bound_ns, whole.lower_bound_ns);
}

// Of every configuration that memory allows, rising.
std::vector<std::int64_t> bounds_of_all(const PlanSearchRequest& request) {
  const PlanScorer scorer(request);
  std::vector<std::int64_t> result;
  for (const int replicas : scorer.space().replica_counts()) {
    scorer.space().for_each(replicas, nullptr, [&](const PlanShape& config) {
      const PlanBound bound = scorer.bounds().bound(config);
      if (bound.cause != BoundCause::kMemory) {
        result.push_back(bound.ns);
      }
    });
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Holding few configurations at a time loses none unsaid: where the best one was not held, the
// result does not claim to be complete, and what was not held cannot be faster than it says.
TEST(SearchPlans, SaysWhatItCouldNotHold) {
  Rng rng(47);
  int lost = 0;
  int kept = 0;
  for (int i = 0; i < 200; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 6);
    PlanSearchRequest request = plan_case.request_of();
    request.runners_up = 0;
    const PlanSearchResult whole = search_plans(request);
    request.most_candidates = 1 + i % 3;
    const PlanSearchResult held = search_plans(request);
    if (!held.fits()) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    EXPECT_EQ(held.lower_bound_ns, whole.lower_bound_ns);
    ASSERT_TRUE(whole.complete);
    const std::vector<std::int64_t> bounds = bounds_of_all(request);
    const auto held_most = static_cast<std::size_t>(request.most_candidates);
    if (bounds.size() > held_most && bounds[held_most] < total_ns(held.best())) {
      EXPECT_FALSE(held.complete);
      EXPECT_LE(held.left_bound_ns, bounds[held_most] / std::ssize(request.batches));
    }
    if (held.best().mean_ns > whole.best().mean_ns) {
      ++lost;
      EXPECT_FALSE(held.complete);
      EXPECT_GT(held.left, 0);
      EXPECT_LE(held.left_bound_ns, whole.best().mean_ns);
    } else {
      kept += held.complete ? 1 : 0;
    }
  }
  EXPECT_GT(lost, 10);
  EXPECT_GT(kept, 10);
}

// What is far behind the best plan is set aside, and judged in the end where the budget allows.
TEST(SearchPlans, SetsAsideWhatIsFarBehind) {
  Rng rng(53);
  int set_aside = 0;
  int saved = 0;  // simulated steps
  for (int i = 0; i < 100; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult whole = search_plans(request);
    EXPECT_TRUE(whole.set_aside.empty());
    request.most_simulations = 8;
    const PlanSearchResult little = search_plans(request);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    EXPECT_LE(little.set_aside.size(), static_cast<std::size_t>(little.left));
    for (const PlanCandidate& candidate : little.set_aside) {
      ++set_aside;
      saved += static_cast<int>(request.batches.size() - candidate.steps.size());
      EXPECT_FALSE(little.complete);
      EXPECT_EQ(candidate.state, CandidateState::kSetAside);
      ASSERT_LT(candidate.steps.size(), request.batches.size());
      EXPECT_GE(candidate.mean_ns, candidate.bound_ns);
      EXPECT_LE(little.left_bound_ns, candidate.mean_ns);
    }
  }
  EXPECT_GT(set_aside, 20);
  EXPECT_GE(saved, set_aside);
}

TEST(SearchPlans, GivesEqualResultsForEqualRequests) {
  const oracle::PlanCase plan_case = make_search_case();
  int calls = 0;
  PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult first = search_plans(request);
  request.progress = [&calls](int) { ++calls; };
  const PlanSearchResult second = search_plans(request);
  EXPECT_EQ(calls, second.simulated_steps);
  ASSERT_EQ(first.plans.size(), second.plans.size());
  for (std::size_t i = 0; i < first.plans.size(); ++i) {
    EXPECT_EQ(first.plans[i].plan, second.plans[i].plan);
  }
}

// Clusters that fit a plan with recomputation alone; the search says so, and what it costs.
TEST(SearchPlans, RecomputesWhereNothingFitsWithout) {
  Rng rng(71);
  int with = 0;
  int full = 0;
  for (int i = 0; i < 200; ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 2);
    PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult any = search_plans(request);
    request.recompute = RecomputeRule::kNever;
    const PlanSearchResult never = search_plans(request);
    request.recompute = RecomputeRule::kFull;
    const PlanSearchResult all = search_plans(request);
    EXPECT_TRUE(any.fits() || !never.fits()) << oracle::describe(plan_case);
    EXPECT_EQ(never.reason.find("recomputed"), std::string::npos) << never.reason;
    for (const PlanCandidate& candidate : all.plans) {
      EXPECT_TRUE(recomputes(candidate.plan));
    }
    full += all.fits() ? 1 : 0;
    if (any.fits() && !never.fits()) {
      ++with;
      EXPECT_LE(any.lower_bound_ns, any.best().mean_ns);
      EXPECT_EQ(any.best().lane_recompute_ns.empty(), !recomputes(any.best().plan));
    }
  }
  EXPECT_GT(with, 10);
  EXPECT_GT(full, 10);
}

TEST(SearchPlans, CountsWhatEachBoundHasCut) {
  const oracle::PlanCase plan_case = make_search_case();
  const PlanSearchResult result = search_plans(plan_case.request_of());
  std::int64_t cut = 0;
  for (const CutSummary& summary : result.cuts) {
    EXPECT_GT(summary.count, 0);
    EXPECT_EQ(summary.nearest.empty(), summary.cause == BoundCause::kMemory);
    if (summary.cause != BoundCause::kMemory) {
      EXPECT_GE(summary.nearest_ns + 1, result.best().mean_ns);
    }
    cut += summary.count;
  }
  EXPECT_GT(cut, 0);
}

// Gives every sample so many segments, all alike.
void set_segments(std::size_t count, oracle::PlanCase& plan_case) {
  for (std::vector<SampleWork>& batch : plan_case.request.batches) {
    for (SampleWork& sample : batch) {
      for (std::vector<SegmentWork>& segments : sample.segments) {
        segments.assign(count, {.tokens = 1, .attention_pairs = 1, .llm_tokens = 1});
      }
    }
  }
}

// Patience multiplies what a search may spend: what stops after the default budget goes on, and a
// plan that it finds is no slower.
TEST(SearchPlans, SpendsMoreWherePatient) {
  Rng rng(61);
  int went_on = 0;
  for (int i = 0; i < 3000 && went_on < 3; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = -1;
    const PlanSearchResult hasty = search_plans(request);
    const auto batches = static_cast<int>(request.batches.size());
    EXPECT_LE(hasty.simulated_steps, default_budget(1) + batches);
    if (hasty.complete || !hasty.fits() || hasty.simulated_steps < default_budget(1)) {
      continue;
    }
    request.patience = 3;
    const PlanSearchResult patient = search_plans(request);
    EXPECT_GT(patient.simulated_steps, hasty.simulated_steps);
    EXPECT_LE(patient.simulated_steps, default_budget(3) + batches);
    EXPECT_LE(patient.best().mean_ns, hasty.best().mean_ns);
    ++went_on;
  }
  EXPECT_EQ(went_on, 3);
}

// Without a number of its own a search stops after kMostSimulations, or kLeastSimulations of long
// steps.
TEST(SearchPlans, SpendsLessWhereStepsTakeLong) {
  Rng rng(59);
  int with_long_steps = 0;
  for (int i = 0; i < 3000 && with_long_steps < 2; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    const auto batches = static_cast<int>(plan_case.request.batches.size());
    if (plan_case.cluster.memory_bytes != 0 || plan_case.model.num_modules() != 2 ||
        plan_case.request.batches.front().size() < 6) {
      continue;
    }
    set_segments(20, plan_case);
    const int all = search_plans(plan_case.request_of()).simulated_steps;
    if (all < kLeastSimulations + batches || all >= kMostSimulations) {
      continue;
    }
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = -1;
    EXPECT_EQ(search_plans(request).simulated_steps, all);
    // As much work as before, in three hundred times the units.
    set_segments(6'000, plan_case);
    for (LayerProfile& layer : plan_case.profile.layers) {
      if (layer.module != "llm") {
        for (CostCurve* curve : {&layer.forward, &layer.backward_input, &layer.backward_weight}) {
          curve->per_pair_ns /= 300;
          curve->per_token_ns /= 300;
        }
      }
    }
    request = plan_case.request_of();
    request.most_simulations = -1;
    const PlanSearchResult result = search_plans(request);
    with_long_steps += result.complete ? 0 : 1;
    EXPECT_LT(result.simulated_steps, kLeastSimulations + batches);
  }
  EXPECT_EQ(with_long_steps, 2);
}

}  // namespace
}  // namespace entrain
