#include "entrain/core/planner/plan_scorer.h"

#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

oracle::PlanCase make_case() {
  Rng rng(41);
  oracle::PlanCase result = oracle::make_plan_case(rng, 4);
  while (result.request.batches.size() != 3 || result.cluster.memory_bytes != 0 ||
         result.cluster.num_nodes * result.cluster.devices_per_node != 4) {
    result = oracle::make_plan_case(rng, 4);
  }
  return result;
}

TEST(PlanScorer, MakesPlansOfTheirConfigurations) {
  const oracle::PlanCase plan_case = make_case();
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  for (const PlanConfig& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
    const PlanCandidate candidate = scorer.make_candidate(config);
    EXPECT_EQ(candidate.plan.replicas, config.replicas);
    EXPECT_EQ(candidate.plan.num_lanes(), lanes_of(config));
    EXPECT_EQ(candidate.plan.policy, request.policy);
    EXPECT_EQ(candidate.lane_work_ns.size(), candidate.plan.lanes.size());
    for (std::size_t module = 0; module < config.modules.size(); ++module) {
      EXPECT_EQ(std::ssize(candidate.plan.modules[module].stages), config.modules[module].stages);
      EXPECT_EQ(candidate.plan.modules[module].tensor_parallel,
                config.modules[module].degrees.tensor_parallel);
    }
  }
}

TEST(PlanScorer, StopsOnlyWhatIsProvenSlower) {
  const oracle::PlanCase plan_case = make_case();
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const PlanConfig config = oracle::all_configs(plan_case, scorer.space().degrees()).front();
  PlanCandidate whole = scorer.make_candidate(config);
  scorer.simulate(whole, kNever);
  ASSERT_EQ(whole.state, CandidateState::kSimulated);
  ASSERT_EQ(whole.steps.size(), 3U);
  EXPECT_EQ(scorer.simulated_steps(), 3);
  EXPECT_EQ(whole.mean_ns, total_ns(whole) / 3);
  PlanCandidate same = scorer.make_candidate(config);
  scorer.simulate(same, total_ns(whole) + 1);
  EXPECT_EQ(same.steps, whole.steps);
  PlanCandidate stopped = scorer.make_candidate(config);
  scorer.simulate(stopped, whole.steps[0] + 1);
  EXPECT_EQ(stopped.state, CandidateState::kStopped);
  EXPECT_LT(stopped.steps.size(), 3U);
  EXPECT_LE(stopped.mean_ns, whole.mean_ns);
}

TEST(PlanScorer, RefusesWhatItCannotScore) {
  const auto refuses = [](auto change) {
    oracle::PlanCase plan_case = make_case();
    change(plan_case.request);
    const PlanSearchRequest request = plan_case.request_of();
    EXPECT_THROW(PlanScorer{request}, InvalidInput);
  };
  refuses([](PlanSearchRequest& request) { request.batches.clear(); });
  refuses([](PlanSearchRequest& request) { request.batches[1].pop_back(); });
  refuses([](PlanSearchRequest& request) { request.policy = "none"; });
  refuses([](PlanSearchRequest& request) { request.schedule = "none"; });
  refuses([](PlanSearchRequest& request) { request.space.microbatches = {0}; });
}

}  // namespace
}  // namespace entrain
