#include "entrain/core/planner/peer_plans.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

constexpr int kCases = 300;

// Two modules or more; with `dip` the oracle lists lanes that all of them share.
oracle::PlanCase make_case(Rng& rng, const char* schedule) {
  oracle::PlanCase result;
  do {
    result = rng.below(3) == 0 ? oracle::make_full_case(rng, 6) : oracle::make_plan_case(rng, 6);
  } while (result.model.num_modules() == 1);
  result.request.schedule = schedule;
  result.request.policy = "lpt-2d";
  result.request.space.microbatches = {1, 3};
  result.request.space.replicas = 0;
  result.request.recompute = RecomputeRule::kNever;
  return result;
}

// Of every configuration that a planner may take and that fits: its T.
template <class Wanted>
std::vector<std::pair<PlanShape, std::int64_t>> all_times(const oracle::PlanCase& plan_case,
                                                          const Wanted& wanted) {
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  std::vector<std::pair<PlanShape, std::int64_t>> result;
  for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
    const bool context =
        std::any_of(config.modules.begin(), config.modules.end(), [](const ModuleShape& module) {
          return module.degrees.context_parallel > 1;
        });
    if (context || !wanted(config) || scorer.bounds().bound(config).cause == BoundCause::kMemory ||
        scorer.make_candidate(config).state == CandidateState::kNoFit) {
      continue;
    }
    std::int64_t slowest = 0;
    for (const std::int64_t slot :
         scorer.bounds().lane_slot_ns(config, scorer.bounds().cut(config))) {
      slowest = std::max(slowest, slot);
    }
    result.emplace_back(config, (config.num_slots + lanes_of(config) - 1) * slowest);
  }
  return result;
}

TEST(DflopPlan, HasTheFewestSlotsWithinATenthOfTheLeastFormula) {
  Rng rng(83);
  int planned = 0;
  int preferred = 0;  // not the least T
  for (int i = 0; i < kCases; ++i) {
    const oracle::PlanCase plan_case = make_case(rng, "1f1b");
    const auto times = all_times(plan_case, [](const PlanShape& config) {
      return config.layout == ModuleLayout::kOwnLanes;
    });
    const FormulaPlan found = dflop_plan(plan_case.request_of());
    ASSERT_EQ(found.fits(), !times.empty()) << oracle::describe(plan_case) << found.reason;
    if (times.empty()) {
      continue;
    }
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& [config, time] : times) {
      least = std::min(least, time);
    }
    std::pair<int, std::int64_t> best{std::numeric_limits<int>::max(), 0};
    for (const auto& [config, time] : times) {
      if (10 * time <= 11 * least) {
        best = std::min(best, {config.num_slots, time});
      }
    }
    EXPECT_EQ(found.config.num_slots, best.first) << oracle::describe(plan_case);
    EXPECT_EQ(found.formula_ns, best.second) << oracle::describe(plan_case);
    EXPECT_NO_THROW(validate(found.plan, plan_case.model, "dflop"));
    ++planned;
    preferred += best.second > least ? 1 : 0;
  }
  EXPECT_GT(planned, kCases / 3);
  EXPECT_GT(preferred, kCases / 50);
}

TEST(OrchmllmPlan, HasTheMostReplicasThenTheFewestLanes) {
  Rng rng(84);
  int planned = 0;
  int several = 0;  // devices a replica
  for (int i = 0; i < kCases; ++i) {
    const oracle::PlanCase plan_case = make_case(rng, "dip");
    const auto times = all_times(plan_case, [](const PlanShape&) { return true; });
    const FormulaPlan found = orchmllm_plan(plan_case.request_of());
    ASSERT_EQ(found.fits(), !times.empty()) << oracle::describe(plan_case) << found.reason;
    if (times.empty()) {
      continue;
    }
    std::tuple<int, int, std::int64_t> best{0, 0, 0};
    for (const auto& [config, time] : times) {
      best = std::max(best, {config.replicas, -lanes_of(config), -time});
    }
    EXPECT_EQ(std::make_tuple(found.config.replicas, -lanes_of(found.config), -found.formula_ns),
              best)
        << oracle::describe(plan_case);
    for (const std::vector<StageRef>& lane : found.plan.lanes) {
      EXPECT_EQ(lane.size(), found.plan.modules.size());
    }
    ++planned;
    several += devices_per_replica(found.config) > 1 ? 1 : 0;
  }
  EXPECT_GT(planned, kCases / 3);
  EXPECT_GT(several, kCases / 20);
}

TEST(PeerPlans, SayWhyThereIsNone) {
  Rng rng(85);
  oracle::PlanCase plan_case = make_case(rng, "1f1b");
  plan_case.cluster.memory_bytes = 1;
  for (const FormulaPlan& plan :
       {dflop_plan(plan_case.request_of()), orchmllm_plan(plan_case.request_of())}) {
    EXPECT_FALSE(plan.fits());
    EXPECT_NE(plan.reason.find("short"), std::string::npos) << plan.reason;
  }
}

}  // namespace
}  // namespace entrain
