#include "entrain/core/planner/plan_bound.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/layer_times.h"
#include "entrain/core/planner/plan_scorer.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/plan_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Calls visit(stages) for every cut of a module's layers into `stages` parts.
void for_each_cut(int begin,
                  int layers,
                  int stages,
                  std::vector<LayerRange>& head,
                  const std::function<void()>& visit) {
  if (stages == 0) {
    if (begin == layers) {
      visit();
    }
    return;
  }
  for (int end = begin + 1; end <= layers - (stages - 1); ++end) {
    head.push_back({begin, end});
    for_each_cut(end, layers, stages - 1, head, visit);
    head.pop_back();
  }
}

// A configuration's bound holds for every cut of its layers, not only for the one that is used:
// compare with simulating random other cuts.
TEST(PlanBounds, HoldForEveryCutOfTheLayers) {
  constexpr std::uint64_t kSeed = 31;
  Rng rng(kSeed);
  int cuts = 0;
  for (int i = 0; i < 150; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 5);
    plan_case.cluster.memory_bytes = 0;
    const PlanSearchRequest request = plan_case.request_of();
    PlanScorer scorer(request);
    std::vector<PlanShape> configs = oracle::all_configs(plan_case, scorer.space().degrees());
    rng.shuffle(std::span(configs));
    configs.resize(std::min<std::size_t>(configs.size(), 3));
    for (const PlanShape& config : configs) {
      const std::int64_t bound = scorer.bounds().bound(config).ns;
      PlanCandidate candidate = scorer.make_candidate(config);
      const auto module = rng.below(config.modules.size());
      std::vector<LayerRange> head;
      for_each_cut(0,
                   num_layers(plan_case.model, static_cast<int>(module)),
                   config.modules[module].stages,
                   head,
                   [&] {
                     PlanCandidate other = candidate;
                     other.plan.modules[module].stages = head;
                     scorer.simulate(other, std::numeric_limits<std::int64_t>::max());
                     ASSERT_LE(bound, total_ns(other)) << "seed " << kSeed << " case " << i << ": "
                                                       << describe(config, plan_case.model);
                     ++cuts;
                   });
    }
  }
  EXPECT_GT(cuts, 500);
}

// Where memory cuts a module's shape, every cut of its layers has a stage whose state and largest
// unit (what it keeps with all recomputed, where that is allowed) together exceed a device.
TEST(PlanBounds, CutByMemoryWhatCannotFit) {
  constexpr std::uint64_t kSeed = 37;
  Rng rng(kSeed);
  int forbidden = 0;
  int allowed = 0;
  for (int i = 0; i < 400; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
    plan_case.request.limits.chunks = false;
    plan_case.cluster.memory_bytes = 20'000 + static_cast<std::int64_t>(rng.below(400'000));
    PlanSearchRequest request = plan_case.request_of();
    const bool recompute = i % 2 == 1;
    request.recompute = recompute ? RecomputeRule::kAuto : RecomputeRule::kNever;
    const PlanScorer scorer(request);
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      const PlanBound bound = scorer.bounds().bound(config);
      if (bound.cause != BoundCause::kMemory) {
        ++allowed;
        continue;
      }
      const auto module = static_cast<std::size_t>(bound.module);
      Plan plan = layer_plan(plan_case.model);
      plan.replicas = config.replicas;
      plan.modules[module].tensor_parallel = config.modules[module].degrees.tensor_parallel;
      plan.modules[module].context_parallel = config.modules[module].degrees.context_parallel;
      std::vector<LayerRange> head;
      for_each_cut(
          0, num_layers(plan_case.model, bound.module), config.modules[module].stages, head, [&] {
            plan.modules[module].stages = head;
            plan.modules[module].recompute.clear();
            for (const LayerRange& layers : head) {
              plan.modules[module].recompute.push_back(recompute ? layers.end - layers.begin : 0);
            }
            plan.lanes = default_lanes(plan.modules);
            const std::vector<StateBytes> states =
                lane_states(plan_case.model, plan, request.state);
            std::int64_t needed = 0;
            for (const std::vector<SampleWork>& batch : request.batches) {
              const StepCosts costs = step_costs(plan_case.model, plan, plan_case.profile, batch);
              for (std::size_t s = 0; s < head.size(); ++s) {
                const int lane = plan.lane_of(bound.module, static_cast<int>(s));
                std::int64_t largest = 0;
                for (const UnitCost& unit : costs.modules[module].stages[s].units) {
                  largest = std::max(largest, unit.activation_bytes);
                }
                needed = std::max(needed,
                                  states[static_cast<std::size_t>(lane)].total_bytes() + largest);
              }
            }
            EXPECT_GT(needed, plan_case.cluster.memory_bytes) << "seed " << kSeed << " case " << i;
            ++forbidden;
          });
    }
  }
  EXPECT_GT(forbidden, 200);
  EXPECT_GT(allowed, 200);
}

// With launches and transfers free, all work in one layer and one lane, nothing is left to chance.
TEST(PlanBounds, AreExactForOneLane) {
  Rng rng(7);
  int seen = 0;
  for (int i = 0; i < 60; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 1);
    plan_case.cluster = {};
    plan_case.request.limits.chunks = false;
    for (LayerProfile& layer : plan_case.profile.layers) {
      layer.forward.per_launch_ns = 0;
      layer.backward_input.per_launch_ns = 0;
      layer.backward_weight.per_launch_ns = 0;
    }
    oracle::freeze(oracle::FrozenPattern::kNone, plan_case.model);
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult result = search_plans(request);
    ASSERT_TRUE(result.fits());
    EXPECT_LE(result.best().bound_ns, result.best().mean_ns);
    EXPECT_GE(static_cast<double>(result.best().bound_ns) * 1.02 + 500,
              static_cast<double>(result.best().mean_ns))
        << oracle::describe(plan_case);
    ++seen;
  }
  EXPECT_EQ(seen, 60);
}

TEST(PlanBounds, NameTheModuleThatBinds) {
  Rng rng(11);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 1);
  while (plan_case.model.num_modules() != 2) {
    plan_case = oracle::make_plan_case(rng, 1);
  }
  oracle::freeze(oracle::FrozenPattern::kNone, plan_case.model);
  plan_case.cluster = {};
  plan_case.cluster.devices_per_node = 2;
  for (LayerProfile& layer : plan_case.profile.layers) {
    if (layer.module == "llm") {
      layer.forward.per_token_ns *= 1e4;
    }
  }
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  PlanShape config;
  config.modules = {{{1, 1}, 1}, {{1, 1}, 1}};
  EXPECT_EQ(scorer.bounds().bound(config).cause, BoundCause::kWork);
  EXPECT_EQ(scorer.bounds().bound(config).module, 1);
  config.layout = ModuleLayout::kColocated;
  EXPECT_EQ(scorer.bounds().bound(config).cause, BoundCause::kShared);
  // One sample alone is all way and no work to share.
  plan_case.request.batches = {{plan_case.request.batches[0][0]}};
  plan_case.request.batches[0][0].llm_tokens = 1000;
  plan_case.request.limits.chunks = false;
  const PlanSearchRequest alone = plan_case.request_of();
  PlanShape stages;
  stages.modules = {{{1, 1}, 1}, {{1, 1}, 2}};
  plan_case.cluster.devices_per_node = 3;
  const PlanScorer of_one(alone);
  EXPECT_EQ(of_one.bounds().bound(stages).cause, BoundCause::kChain);
}

}  // namespace
}  // namespace entrain
