#include "entrain/core/planner/memory_check.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/planner/plan_search.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

// Copies of the drawn batches in which, one after another, a sample has grown to `percent`: steps
// 100, 101, … No sample of theirs is named as the largest.
PlanSearchRequest with_further(const oracle::PlanCase& plan_case, int count, int percent) {
  PlanSearchRequest request = plan_case.request_of();
  request.further.first = 100;
  request.further.in_row = count;
  for (int i = 0; i < count; ++i) {
    request.further.steps.push_back(100 + i);
  }
  request.further.draw = [batches = request.batches, percent](std::int64_t step) {
    const auto index = static_cast<std::size_t>(step - 100);
    std::vector<SampleWork> batch = batches[index % batches.size()];
    SampleWork& sample = batch[index % batch.size()];
    sample.llm_tokens = sample.llm_tokens * percent / 100;
    sample.llm_attention_pairs = sample.llm_tokens * sample.llm_tokens / 2;
    return batch;
  };
  return request;
}

// The steps of the request's further batches that the plan misses.
std::vector<std::int64_t> missed_steps(const PlanSearchRequest& request, const Plan& plan) {
  std::vector<std::int64_t> missed;
  const Profile profile = cluster_profile(*request.profile, *request.cluster, plan.replicas);
  for (const std::int64_t step : request.further.steps) {
    const StepCosts costs = step_costs(*request.model, plan, profile, request.further.draw(step));
    Plan run = plan;
    run.limits.evaluations = 200;
    if (!score_step(run, costs, step, request.seed).fits()) {
      missed.push_back(step);
    }
  }
  return missed;
}

// Clusters short of memory whose best plan without a look at further batches misses one.
TEST(FurtherBatches, TakeTheNextBestPlanWhereTheBestMissesOne) {
  Rng rng(83);
  int other = 0;           // another plan was taken
  int configurations = 0;  // of another configuration
  int nothing = 0;         // none fits
  for (int i = 0; i < oracle::case_count(600); ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
    PlanSearchRequest request = with_further(plan_case, 12, 220);
    const PlanSearchResult checked = search_plans(request);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    if (checked.fits()) {
      EXPECT_EQ(missed_steps(request, checked.best().plan), std::vector<std::int64_t>());
      EXPECT_EQ(checked.further_batches, 12);
      EXPECT_EQ(checked.best().plan.certificate.further_batches, 12);
    }
    const FurtherBatches further = std::exchange(request.further, {});
    const PlanSearchResult alone = search_plans(request);
    EXPECT_EQ(alone.further_batches, 0);
    EXPECT_TRUE(alone.fits() || !checked.fits());
    request.further = further;
    if (!alone.fits() || missed_steps(request, alone.best().plan).empty()) {
      continue;
    }
    if (checked.fits()) {
      ++other;
      // Not only more recomputation under the same configuration.
      configurations += checked.best().config == alone.best().config ? 0 : 1;
      EXPECT_GE(checked.best().mean_ns, alone.best().mean_ns);
    } else {
      ++nothing;
      for (const char* words : {"one of 12 further batches (step 1", "lane ", "bytes short"}) {
        EXPECT_NE(checked.reason.find(words), std::string::npos) << checked.reason;
      }
      EXPECT_NE(checked.reason.find("what would fit there: devices of"), std::string::npos)
          << checked.reason;
    }
  }
  std::printf(
      "%d other plans, %d of another configuration, %d none\n", other, configurations, nothing);
  EXPECT_GT(other, oracle::met_count(20));
  EXPECT_GT(configurations, oracle::met_count(5));
  EXPECT_GT(nothing, oracle::met_count(5));
}

// What the search chooses is the fastest of all plans that fit every further batch.
TEST(FurtherBatches, LoseNoBetterPlanThatFitsThem) {
  Rng rng(89);
  int compared = 0;
  for (int i = 0; i < oracle::case_count(250); ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
    const PlanSearchRequest request = with_further(plan_case, 6, 180);
    PlanScorer scorer(request);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      if (scorer.bounds().bound(config).cause == BoundCause::kMemory) {
        continue;
      }
      const PlanCandidate candidate =
          scorer.score(config, std::numeric_limits<std::int64_t>::max());
      if (candidate.state == CandidateState::kSimulated) {
        best = std::min(best, total_ns(candidate));
      }
    }
    const PlanSearchResult result = search_plans(request);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    ASSERT_EQ(result.fits(), best != std::numeric_limits<std::int64_t>::max());
    if (result.fits()) {
      ++compared;
      EXPECT_EQ(total_ns(result.best()), best);
    }
  }
  EXPECT_GT(compared, oracle::met_count(60));
}

// The largest of them alone, told to the bounds: nothing has to be simulated to know.
TEST(FurtherBatches, CutWhatTheirLargestSampleForbids) {
  Rng rng(97);
  int cut = 0;
  for (int i = 0; i < 300 && cut < 3; ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 3);
    PlanSearchRequest request = with_further(plan_case, 4, 100'000);
    if (plan_case.request.limits.chunks || !search_plans(plan_case.request_of()).fits()) {
      continue;
    }
    request.further.largest = {request.further.draw(100).front()};
    const PlanSearchResult result = search_plans(request);
    if (result.fits()) {
      continue;
    }
    ++cut;
    EXPECT_EQ(result.simulated_steps, 0);
    EXPECT_NE(result.reason.find("llm"), std::string::npos) << result.reason;
    EXPECT_NE(result.reason.find("bytes)"), std::string::npos) << result.reason;
  }
  EXPECT_EQ(cut, 3);
}

TEST(FurtherBatches, GiveEqualResultsOnAnyNumberOfThreads) {
  Rng rng(101);
  int missed = 0;
  for (int i = 0; i < oracle::case_count(150); ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
    PlanSearchRequest request = with_further(plan_case, 12, 220);
    const PlanSearchResult first = search_plans(request);
    request.threads = 2 + i % 4;
    const PlanSearchResult second = search_plans(request);
    ASSERT_EQ(first.plans.size(), second.plans.size());
    for (std::size_t plan = 0; plan < first.plans.size(); ++plan) {
      EXPECT_EQ(first.plans[plan].plan, second.plans[plan].plan);
    }
    ASSERT_EQ(first.no_fit.size(), second.no_fit.size());
    for (std::size_t plan = 0; plan < first.no_fit.size(); ++plan) {
      EXPECT_EQ(first.no_fit[plan].reason, second.no_fit[plan].reason);
      missed += first.no_fit[plan].further_step >= 0 ? 1 : 0;
    }
    EXPECT_EQ(first.simulated_steps, second.simulated_steps);
    EXPECT_EQ(first.further_batches, second.further_batches);
    EXPECT_EQ(first.reason, second.reason);
  }
  EXPECT_GT(missed, oracle::met_count(20));
}

// A step that takes long stops a check that may stop, and no other.
TEST(MemoryCheck, LooksAtFewerWhereTheyTakeLong) {
  Rng rng(103);
  oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
  std::optional<PlanSearchResult> found;
  while (!found.has_value() || !found->fits() || plan_case.model.num_modules() != 2) {
    plan_case = oracle::make_full_case(rng, 4);
    found = search_plans(plan_case.request_of());
  }
  PlanSearchRequest request = with_further(plan_case, 40, 100);
  // Segments of no work to speak of, so many that sixteen batches have all the units allowed.
  const auto draw = request.further.draw;
  request.further.draw = [draw](std::int64_t step) {
    std::vector<SampleWork> batch = draw(step);
    const auto each = static_cast<std::size_t>(kMostCheckUnits / kLeastCheckBatches);
    batch.front().segments.front().assign(each,
                                          {.tokens = 0, .attention_pairs = 0, .llm_tokens = 0});
    return batch;
  };
  Plan plan = found->best().plan;
  plan.limits.lane_bytes.assign(plan.lanes.size(), std::int64_t{1} << 60);
  const MemoryCheckInputs inputs{
      request.model, request.profile, request.cluster, &request.further, 0, {}};
  EXPECT_EQ(MemoryCheck(inputs).all(plan).batches, 40);
  request.further.may_stop = true;
  const FurtherMiss stopped = MemoryCheck(inputs).all(plan);
  EXPECT_TRUE(stopped.fits());
  EXPECT_EQ(stopped.batches, kLeastCheckBatches);
}

}  // namespace
}  // namespace entrain
