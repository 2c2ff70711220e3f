#include "entrain/core/planner/plan_scorer.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/planner/recompute_levels.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

oracle::PlanCase make_scorer_case() {
  Rng rng(41);
  oracle::PlanCase result = oracle::make_plan_case(rng, 4);
  while (result.request.batches.size() != 3 || result.cluster.memory_bytes != 0 ||
         result.cluster.num_nodes * result.cluster.devices_per_node != 4) {
    result = oracle::make_plan_case(rng, 4);
  }
  return result;
}

TEST(PlanScorer, MakesPlansOfTheirConfigurations) {
  const oracle::PlanCase plan_case = make_scorer_case();
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
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

TEST(PlanScorer, ChargesTheExchangesOfAShardedOptimizer) {
  oracle::PlanCase plan_case = make_scorer_case();
  plan_case.profile.reduce_bytes_per_second = 1e9;
  plan_case.profile.optimizer_ns_per_parameter = 0.5;
  PlanSearchRequest request = plan_case.request_of();
  request.state.shard_optimizer = false;
  PlanScorer whole(request);
  PlanSearchRequest sharded_request = request;
  sharded_request.state.shard_optimizer = true;
  PlanScorer sharded(sharded_request);
  int differing = 0;
  for (const PlanShape& config : oracle::all_configs(plan_case, whole.space().degrees())) {
    const PlanCandidate of_whole = whole.score(config, kNoStop);
    const PlanCandidate of_shards = sharded.score(config, kNoStop);
    Plan plan = of_whole.plan;
    plan.shard_optimizer = true;
    EXPECT_EQ(of_shards.plan, plan);
    plan.limits.evaluations = request.score_evaluations;
    const Profile profile = cluster_profile(*request.profile, *request.cluster, plan.replicas);
    for (std::size_t batch = 0; batch < request.batches.size(); ++batch) {
      const StepCosts costs = step_costs(*request.model, plan, profile, request.batches[batch]);
      const auto step = request.first_step + static_cast<std::int64_t>(batch);
      EXPECT_EQ(of_shards.steps[batch], score_step(plan, costs, step, request.seed).ns);
    }
    EXPECT_TRUE(config.replicas == 1 || of_shards.steps != of_whole.steps);
    differing += of_shards.steps != of_whole.steps ? 1 : 0;
  }
  EXPECT_GT(differing, 0);
}

// `lpt-2d` can take twice as long on a pipeline, and no longer on one lane.
TEST(PlanScorer, GuessesByTheQuickestPolicyOrByItsOwn) {
  oracle::PlanCase plan_case = make_scorer_case();
  plan_case.request.policy = "entrain";
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  int differing = 0;
  for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
    Plan plan = scorer.make_candidate(scorer.with_suited_slots(config)).plan;
    const Profile profile = cluster_profile(*request.profile, *request.cluster, plan.replicas);
    const StepCosts costs = step_costs(*request.model, plan, profile, request.batches.front());
    const auto step_by = [&](const char* policy) {
      plan.policy = policy;
      plan.limits.evaluations = kFewEvaluations;
      return score_step(plan, costs, request.first_step, request.seed).ns;
    };
    EXPECT_EQ(scorer.guess(config, false), step_by("lpt-2d"));
    EXPECT_EQ(scorer.guess(config, true), step_by("entrain"));
    differing += scorer.guess(config, true) != scorer.guess(config, false) ? 1 : 0;
  }
  EXPECT_GT(differing, 0);
  EXPECT_EQ(scorer.simulated_steps(), 0);
}

TEST(PlanScorer, HalvesSlotsAsLongAsTheEstimateFalls) {
  Rng rng(44);
  int halved = 0;
  for (int i = 0; i < oracle::case_count(30); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.request.policy = i % 2 == 0 ? "entrain" : "lpt-2d";
    const PlanSearchRequest request = plan_case.request_of();
    const PlanScorer scorer(request);
    for (PlanShape config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      if (scorer.bounds().bound(config).cause == BoundCause::kMemory) {
        continue;
      }
      const PlanShape suited = scorer.with_suited_slots(config);
      if (request.policy == "entrain") {
        halved += suited.num_slots < config.num_slots ? 1 : 0;
        for (; config.num_slots > suited.num_slots; config.num_slots /= 2) {
          PlanShape half = config;
          half.num_slots /= 2;
          EXPECT_LT(scorer.bounds().estimate(half), scorer.bounds().estimate(config));
        }
        PlanShape half = config;
        half.num_slots /= 2;
        EXPECT_TRUE(config.num_slots == 1 ||
                    scorer.bounds().estimate(half) >= scorer.bounds().estimate(config));
      }
      EXPECT_EQ(suited, config);
    }
  }
  EXPECT_GT(halved, oracle::met_count(10));
}

TEST(PlanScorer, GivesUpGuessesThatAreFarBehind) {
  Rng rng(43);
  int given_up = 0;
  for (int i = 0; i < oracle::case_count(30); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.request.policy = "entrain";
    const PlanSearchRequest request = plan_case.request_of();
    const PlanScorer scorer(request);
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      if (scorer.bounds().bound(config).cause == BoundCause::kMemory) {
        continue;
      }
      const std::int64_t whole = scorer.guess(config, true);
      if (whole == kNoStop) {
        continue;
      }
      EXPECT_EQ(scorer.guess(config, true, 2 * whole), whole);
      const std::int64_t far = scorer.guess(config, true, whole / 2);
      EXPECT_GT(far, whole / 2);
      given_up += far != whole ? 1 : 0;
    }
  }
  EXPECT_GT(given_up, oracle::met_count(10));
}

TEST(PlanScorer, StopsOnlyWhatIsProvenSlower) {
  const oracle::PlanCase plan_case = make_scorer_case();
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const PlanShape config = oracle::all_configs(plan_case, scorer.space().degrees()).front();
  PlanCandidate whole = scorer.make_candidate(config);
  scorer.simulate(whole, kNoStop);
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

// Scores of batches that were run before a plan was set aside are kept for when its turn comes
// again.
TEST(PlanScorer, SetsAsideWhatIsFarBehindAndGoesOnFromThere) {
  const oracle::PlanCase plan_case = make_scorer_case();
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const PlanShape config = oracle::all_configs(plan_case, scorer.space().degrees()).front();
  const std::vector<std::int64_t> steps = PlanScorer(request).score(config, kNoStop).steps;
  ASSERT_EQ(steps.size(), 3U);
  ASSERT_NE(steps[0], steps[1]);
  // As fast on the first batch, and much faster on the second.
  const std::vector<std::int64_t> rival = {steps[0], steps[1] / 2, 1};
  const PlanCandidate aside = scorer.score(config, kNoStop, rival);
  EXPECT_EQ(aside.state, CandidateState::kSetAside);
  EXPECT_EQ(aside.steps, (std::vector<std::int64_t>{steps[0], steps[1]}));
  EXPECT_GT(time_over(aside, rival), 1 + kFarBehind);
  EXPECT_LE(aside.mean_ns, (steps[0] + steps[1] + steps[2]) / 3);
  EXPECT_EQ(scorer.simulated_steps(), 2);
  const PlanCandidate whole = scorer.score(config, kNoStop);
  EXPECT_EQ(whole.state, CandidateState::kSimulated);
  EXPECT_EQ(whole.steps, steps);
  EXPECT_EQ(scorer.simulated_steps(), 3);
  // Within a per cent of the rival nothing is set aside.
  const std::vector<std::int64_t> near = {steps[0] - steps[0] / 200, steps[1], steps[2]};
  EXPECT_EQ(PlanScorer(request).score(config, kNoStop, near).state, CandidateState::kSimulated);
}

// What is known of a step that was given up is no step of the plan, and says nothing of its mean.
TEST(PlanScorer, SimulatesAgainWhatItGaveUp) {
  oracle::PlanCase plan_case = make_scorer_case();
  plan_case.request.policy = "entrain";
  const PlanSearchRequest request = plan_case.request_of();
  PlanScorer scorer(request);
  const std::vector<PlanShape> configs = oracle::all_configs(plan_case, scorer.space().degrees());
  const PlanShape config = *std::find_if(
      configs.begin(), configs.end(), [](const PlanShape& of) { return of.replicas > 1; });
  const PlanCandidate whole = PlanScorer(request).score(config, kNoStop);
  ASSERT_EQ(whole.steps.size(), 3U);
  const std::vector<std::int64_t> rival = {whole.steps[0] / 2, 1, 1};
  PlanCandidate aside = scorer.score(config, kNoStop, rival);
  EXPECT_EQ(aside.steps.front(), whole.steps.front());
  EXPECT_FALSE(aside.gave_up);
  EXPECT_FALSE(aside.lane_peak_bytes.empty());
  scorer.start_again();
  scorer.set_gives_up(true);
  aside = scorer.score(config, kNoStop, rival);
  EXPECT_EQ(aside.state, CandidateState::kSetAside);
  ASSERT_EQ(aside.steps.size(), 1U);
  EXPECT_TRUE(aside.gave_up);
  EXPECT_TRUE(aside.lane_peak_bytes.empty());
  EXPECT_GT(time_over(aside, rival), 1 + kFarBehind);
  EXPECT_LE(aside.mean_ns, whole.mean_ns);
  EXPECT_GE(aside.mean_ns, aside.bound_ns);
  EXPECT_EQ(scorer.simulated_steps(), 1);
  const PlanCandidate again = scorer.score(config, kNoStop);
  EXPECT_EQ(again.state, CandidateState::kSimulated);
  EXPECT_EQ(again.steps, whole.steps);
  EXPECT_EQ(again.lane_peak_bytes, whole.lane_peak_bytes);
}

// Small clusters with little memory: calls visit(request, config) for every configuration that does
// not fit without recomputation.
template <class Visit>
void for_each_without_room(int cases, const Visit& visit) {
  Rng rng(67);
  for (int i = 0; i < cases; ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
    PlanSearchRequest request = plan_case.request_of();
    request.recompute = RecomputeRule::kNever;
    PlanScorer never(request);
    for (const PlanShape& config : oracle::all_configs(plan_case, never.space().degrees())) {
      if (never.bounds().bound(config).cause == BoundCause::kMemory ||
          never.score(config, kNoStop).state == CandidateState::kNoFit) {
        SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case)
                                        << ": " << describe(config, plan_case.model));
        visit(request, config);
      }
    }
  }
}

// The guess where it fits, else something faster than all layers; no plan breaks a limit.
TEST(PlanScorer, RecomputesNoMoreThanItHasTo) {
  int fit = 0;
  int beyond_the_guess = 0;
  int not_even_full = 0;
  for_each_without_room(400, [&](PlanSearchRequest request, const PlanShape& config) {
    request.recompute = RecomputeRule::kAuto;
    PlanScorer scorer(request);
    if (scorer.bounds().bound(config).cause == BoundCause::kMemory) {
      return;
    }
    const PlanCandidate candidate = scorer.score(config, kNoStop);
    if (candidate.state == CandidateState::kNoFit) {
      not_even_full += candidate.reason.find("every layer recomputed") != std::string::npos ? 1 : 0;
      return;
    }
    ++fit;
    ASSERT_EQ(candidate.steps.size(), request.batches.size());
    for (std::size_t lane = 0; lane < candidate.plan.lanes.size(); ++lane) {
      ASSERT_LE(candidate.lane_peak_bytes[lane], candidate.plan.limits.lane_bytes[lane]);
    }
    const RecomputeLevels all = recompute_levels(
        *request.model,
        candidate.plan,
        cluster_profile(*request.profile, *request.cluster, candidate.plan.replicas),
        request.batches.front());
    const auto at_level = [&](const RecomputeCounts& counts) {
      PlanCandidate other = candidate;
      other.steps.clear();
      for (std::size_t module = 0; module < other.plan.modules.size(); ++module) {
        other.plan.modules[module].recompute = counts[module];
      }
      return other;
    };
    const PlanCandidate guess = at_level(all.levels[static_cast<std::size_t>(all.guess)]);
    if (recomputed_layers(candidate.plan) != recomputed_layers(guess.plan)) {
      ++beyond_the_guess;
      for (PlanCandidate other : {guess, at_level(all.levels.back())}) {
        scorer.simulate(other, kNoStop);
        ASSERT_TRUE(other.state == CandidateState::kNoFit ||
                    (recomputed_layers(other.plan) != recomputed_layers(guess.plan) &&
                     total_ns(other) >= total_ns(candidate)));
      }
    }
  });
  EXPECT_GT(fit, 30);
  EXPECT_GT(beyond_the_guess, 10);
  EXPECT_GT(not_even_full, 30);
}

// Where a plan fits without, recomputation is used only if that is faster.
TEST(PlanScorer, NeverTakesRecomputationThatIsSlower) {
  Rng rng(73);
  int used = 0;
  int passed_over = 0;
  for (int i = 0; i < 200; ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 4);
    const PlanSearchRequest request = plan_case.request_of();
    PlanSearchRequest without = request;
    without.recompute = RecomputeRule::kNever;
    PlanScorer scorer(request);
    PlanScorer never(without);
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      if (never.bounds().bound(config).cause == BoundCause::kMemory) {
        continue;
      }
      const PlanCandidate plain = never.score(config, kNoStop);
      if (plain.state == CandidateState::kNoFit) {
        continue;
      }
      const PlanCandidate best = scorer.score(config, kNoStop);
      ASSERT_EQ(best.state, CandidateState::kSimulated);
      ASSERT_LE(total_ns(best), total_ns(plain));
      used += recomputes(best.plan) ? 1 : 0;
      passed_over += best.recompute_tried && !recomputes(best.plan) ? 1 : 0;
    }
  }
  EXPECT_GT(used, 0);
  EXPECT_GT(passed_over, 0);
}

TEST(PlanScorer, CountsWhatRecomputationTakes) {
  const oracle::PlanCase plan_case = make_scorer_case();
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer never(request);
  PlanSearchRequest recomputing = request;
  recomputing.recompute = RecomputeRule::kFull;
  const PlanScorer full(recomputing);
  for (const PlanShape& config : oracle::all_configs(plan_case, never.space().degrees())) {
    const PlanCandidate without = never.make_candidate(config);
    const PlanCandidate candidate = full.make_candidate(config);
    EXPECT_FALSE(recomputes(without.plan));
    EXPECT_TRUE(without.lane_recompute_ns.empty());
    int layers = 0;
    for (int module = 0; module < plan_case.model.num_modules(); ++module) {
      layers += num_layers(plan_case.model, module);
    }
    EXPECT_EQ(recomputed_layers(candidate.plan), layers);
    ASSERT_EQ(candidate.plan.lanes, without.plan.lanes);
    for (std::size_t lane = 0; lane < candidate.plan.lanes.size(); ++lane) {
      EXPECT_EQ(candidate.lane_work_ns[lane],
                without.lane_work_ns[lane] + candidate.lane_recompute_ns[lane]);
    }
  }
}

TEST(PlanScorer, RefusesWhatItCannotScore) {
  const auto refuses = [](auto change) {
    oracle::PlanCase plan_case = make_scorer_case();
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
