// Larger budgets and spaces, and what every search tries.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/planner/plan_search.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

// Of every batch under the best plan; kNoStop where nothing fits.
std::int64_t best_total(const PlanSearchRequest& request) {
  const PlanSearchResult result = search_plans(request);
  return result.fits() ? total_ns(result.best()) : kNoStop;
}

TEST(SearchPlans, IsNeverWorseWithALargerBudget) {
  Rng rng(67);
  int better = 0;
  for (int i = 0; i < oracle::case_count(80); ++i) {
    const oracle::PlanCase plan_case =
        i % 2 == 0 ? oracle::make_plan_case(rng, 8) : oracle::make_virtual_case(rng, 6);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    PlanSearchRequest request = plan_case.request_of();
    request.space.shared_lanes = i % 4 < 2 ? SharedLanes::kToo : SharedLanes::kNever;
    std::int64_t smaller = kNoStop;
    for (const int budget : {1, 2, 4, 8, 16, 0}) {
      request.most_simulations = budget;
      const std::int64_t found = best_total(request);
      EXPECT_LE(found, smaller) << "budget " << budget;
      better += smaller < kNoStop && found < smaller ? 1 : 0;
      smaller = found;
    }
  }
  EXPECT_GT(better, oracle::met_count(5));
}

// Under budgets that end both searches early.
TEST(SearchPlans, IsNeverWorseInALargerSpace) {
  Rng rng(71);
  int better = 0;
  for (int i = 0; i < oracle::case_count(80); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.request.schedule = "1f1b";
    plan_case.request.most_simulations = 1 + i % 8;
    plan_case.request.space.idle_devices = false;
    plan_case.request.space.shared_lanes = SharedLanes::kNever;
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    oracle::PlanCase small = plan_case;
    std::erase_if(small.profile.layers,
                  [](const LayerProfile& layer) { return layer.context_parallel > 1; });
    const PlanSearchResult found = search_plans(small.request_of());
    std::int64_t smaller = kNoStop;
    if (found.fits() && PlanScorer(plan_case.request_of()).space().contains(found.best().config)) {
      smaller = total_ns(found.best());
    }
    for (const char* more :
         {"context parallelism", "shared lanes", "virtual stages", "idle devices"}) {
      SpaceOptions& space = plan_case.request.space;
      space.shared_lanes =
          more == std::string("shared lanes") ? SharedLanes::kToo : space.shared_lanes;
      space.virtual_stages =
          more == std::string("virtual stages") ? kAutoVirtualStages : space.virtual_stages;
      space.idle_devices = more == std::string("idle devices");
      const std::int64_t larger = best_total(plan_case.request_of());
      EXPECT_LE(larger, smaller) << "with " << more;
      better += smaller < kNoStop && larger < smaller ? 1 : 0;
      smaller = larger;
    }
  }
  EXPECT_GT(better, oracle::met_count(15));
}

// By itself, where the work of modules is uneven: a lane of every module's own leaves others idle.
TEST(SearchPlans, PutsModulesOnTheSameLanesWhereThatIsFaster) {
  Rng rng(97);
  int shared = 0;
  int apart = 0;
  for (int i = 0; i < oracle::case_count(240); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    request.schedule = "1f1b";
    request.space.shared_lanes = SharedLanes::kNever;
    const std::int64_t without = best_total(request);
    request.space.shared_lanes = SharedLanes::kToo;
    const PlanSearchResult found = search_plans(request);
    ASSERT_EQ(found.fits() ? total_ns(found.best()) < without : false,
              found.fits() &&
                  (PlanScorer(request).space().features(found.best().config) & kSharedLanes) != 0)
        << oracle::describe(plan_case);
    if (found.fits() && total_ns(found.best()) < without) {
      const Plan& plan = found.best().plan;
      EXPECT_EQ(found.best().config.layout, ModuleLayout::kColocated);
      EXPECT_GT(plan.lanes.size(), 1U);
      EXPECT_EQ(plan.lanes.front().size(), plan.modules.size());
      ++shared;
    } else {
      ++apart;
    }
  }
  EXPECT_GT(shared, oracle::met_count(10));
  EXPECT_GT(apart, oracle::met_count(10));
}

// Beside others of which not all is known they get an eighth of the budget, and nothing where all
// are guessed slower.
TEST(SearchPlans, SharedLanesTakeLittle) {
  Rng rng(101);
  int none = 0;
  int some = 0;
  for (int i = 0; i < oracle::case_count(800); ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    plan_case.request.schedule = "1f1b";
    plan_case.cluster.memory_bytes = 0;  // one step a batch and plan
    plan_case.request.space.idle_devices = false;
    std::erase_if(plan_case.profile.layers,
                  [](const LayerProfile& layer) { return layer.context_parallel > 1; });
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = 16;
    request.runners_up = 1000;  // no bound excludes anything
    const PlanSearchResult apart = search_plans(request);
    request.space.shared_lanes = SharedLanes::kToo;
    const PlanSearchResult both = search_plans(request);
    const int more = both.simulated_steps - apart.simulated_steps;
    EXPECT_GE(more, 0);
    EXPECT_LE(more, 16 / 8 - 1 + std::ssize(request.batches)) << oracle::describe(plan_case);
    if (!apart.complete && plan_case.model.num_modules() > 1) {
      ++(more == 0 ? none : some);
      EXPECT_FALSE(both.complete);
    }
  }
  EXPECT_GT(none, oracle::met_count(10));
  EXPECT_GT(some, oracle::met_count(10));
}

// Of one replica, which has no optimizer to shard.
void expect_no_twins(const std::vector<PlanCandidate>& plans) {
  for (std::size_t a = 0; a < plans.size(); ++a) {
    for (std::size_t b = a + 1; b < plans.size() && plans[a].config.replicas == 1; ++b) {
      EXPECT_FALSE(plans[a].config == plans[b].config && plans[a].steps == plans[b].steps);
    }
  }
}

// With and without a sharded optimizer: the better of both, each plan of one replica once.
TEST(SearchPlans, TakesTheBetterOptimizer) {
  Rng rng(83);
  int sharded = 0;
  for (int i = 0; i < oracle::case_count(60); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = i % 2 == 0 ? 0 : 8;
    request.state.shard_optimizer = false;
    const std::int64_t without = best_total(request);
    request.state.shard_optimizer = true;
    const std::int64_t with = best_total(request);
    request.any_optimizer = true;
    const PlanSearchResult any = search_plans(request);
    EXPECT_EQ(any.fits() ? total_ns(any.best()) : kNoStop, std::min(with, without));
    for (const auto* list : {&any.plans, &any.stopped, &any.set_aside}) {
      expect_no_twins(*list);
    }
    sharded += any.fits() && any.best().plan.shard_optimizer ? 1 : 0;
  }
  EXPECT_GT(sharded, oracle::met_count(20));
}

TEST(SearchPlans, FindsTheSameOnAnyNumberOfThreads) {
  Rng rng(73);
  for (int i = 0; i < oracle::case_count(40); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = 8;
    const PlanSearchResult one = search_plans(request);
    for (const int threads : {2, 3}) {
      request.threads = threads;
      const PlanSearchResult several = search_plans(request);
      EXPECT_EQ(several.simulated_steps, one.simulated_steps);
      EXPECT_EQ(several.left_bound_ns, one.left_bound_ns);
      ASSERT_EQ(several.plans.size(), one.plans.size());
      for (std::size_t rank = 0; rank < one.plans.size(); ++rank) {
        EXPECT_EQ(several.plans[rank].plan, one.plans[rank].plan);
      }
    }
  }
}

// Plain data parallelism is simulated whatever comes first by guess.
TEST(SearchPlans, AlwaysTriesReplicasOfOneLane) {
  Rng rng(79);
  int tried = 0;
  for (int i = 0; i < oracle::case_count(120); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    request.runners_up = 1000;  // no bound excludes anything
    const PlanScorer scorer(request);
    request.most_simulations = 5 * static_cast<int>(request.batches.size());
    if (scorer.space().feature_sets().size() > 1 || plan_case.cluster.memory_bytes != 0) {
      continue;
    }
    const PlanSearchResult result = search_plans(request);
    std::size_t wanted = 0;
    for (const int replicas : scorer.space().replica_counts()) {
      scorer.space().for_each(replicas, nullptr, [&](const PlanShape& config) {
        wanted += lanes_of(config) == 1 ? 1 : 0;
      });
    }
    std::size_t found = 0;
    for (const auto* list : {&result.plans, &result.stopped, &result.set_aside, &result.no_fit}) {
      found += static_cast<std::size_t>(
          std::count_if(list->begin(), list->end(), [](const PlanCandidate& candidate) {
            return lanes_of(candidate.config) == 1;
          }));
    }
    tried += static_cast<int>(found);
    EXPECT_GE(found, std::min<std::size_t>(wanted, 4)) << oracle::describe(plan_case);
  }
  EXPECT_GT(tried, oracle::met_count(25));
}

}  // namespace
}  // namespace entrain
