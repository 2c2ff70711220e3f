#include "entrain/core/planner/layer_figures.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/layer_times.h"

#include "tests/oracle/plan_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

std::vector<std::vector<Degrees>> degrees_of(const oracle::PlanCase& plan_case) {
  ClusterSpec wide = plan_case.cluster;
  wide.devices_per_node = 8;
  return cluster_degrees(plan_case.model, plan_case.profile, wide);
}

// Against the costs of plans in which every layer is a stage of its own.
TEST(LayerFigures, NeverExceedWhatALayerCostsAndStayNear) {
  constexpr std::uint64_t kSeed = 13;
  Rng rng(kSeed);
  for (int i = 0; i < 300; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " case " << i);
    const auto degrees = degrees_of(plan_case);
    const auto all =
        layer_figures(plan_case.model, plan_case.profile, plan_case.request.batches, degrees, {});
    for (std::size_t module = 0; module < degrees.size(); ++module) {
      ASSERT_EQ(all[module].size(), degrees[module].size());
      for (std::size_t index = 0; index < degrees[module].size(); ++index) {
        Plan plan = layer_plan(plan_case.model);
        plan.modules[module].tensor_parallel = degrees[module][index].tensor_parallel;
        plan.modules[module].context_parallel = degrees[module][index].context_parallel;
        const LayerFigures& figures = all[module][index];
        for (std::size_t batch = 0; batch < plan_case.request.batches.size(); ++batch) {
          const StepCosts costs = step_costs(
              plan_case.model, plan, plan_case.profile, plan_case.request.batches[batch]);
          const std::vector<StageCosts>& layers = costs.modules[module].stages;
          for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            std::int64_t forward = 0;
            std::int64_t most = 0;
            std::int64_t least_forward = 0;
            for (const UnitCost& unit : layers[layer].units) {
              forward += unit.time.forward.count();
              most += (unit.time.forward + unit.time.backward()).count();
              least_forward = least_forward == 0
                                  ? unit.time.forward.count()
                                  : std::min(least_forward, unit.time.forward.count());
            }
            const std::int64_t work = figures.work_ns[batch][layer];
            EXPECT_LE(work - figures.rounding_ns[batch], most);
            EXPECT_GE(work + 2 * figures.rounding_ns[batch] + 1, forward);
            if (!layers[layer].units.empty()) {
              EXPECT_LE(figures.least_forward_ns[layer],
                        least_forward + layers[layer].launch.forward.count());
            }
          }
        }
      }
    }
  }
}

TEST(LayerFigures, CountNoBackwardThatTrainingMayLeaveOut) {
  Rng rng(17);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
  while (plan_case.model.encoders.empty()) {
    plan_case = oracle::make_plan_case(rng, 4);
  }
  oracle::freeze(oracle::FrozenPattern::kLlm, plan_case.model);
  std::vector<SampleWork>& batch = plan_case.request.batches[0];
  for (SampleWork& sample : batch) {
    for (std::vector<SegmentWork>& segments : sample.segments) {
      segments.clear();  // text alone: a frozen LLM has nothing to send gradients to
    }
  }
  plan_case.request.batches.resize(1);
  const auto degrees = degrees_of(plan_case);
  const LayerFigures figures =
      layer_figures(plan_case.model, plan_case.profile, plan_case.request.batches, degrees, {})
          .back()
          .front();
  const StepCosts costs =
      step_costs(plan_case.model, layer_plan(plan_case.model), plan_case.profile, batch);
  for (std::size_t layer = 0; layer < figures.launch_ns.size(); ++layer) {
    std::int64_t forward = 0;
    for (const UnitCost& unit : costs.modules.back().stages[layer].units) {
      forward += unit.time.forward.count();
    }
    EXPECT_LE(figures.work_ns[0][layer], forward);
    EXPECT_EQ(figures.least_backward_ns[layer], 0);
  }
}

// Equal neighbours are read once: a b a b gives what a a b b does.
TEST(LayerFigures, DependOnNoOrderOfSegments) {
  Rng rng(23);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
  while (plan_case.model.encoders.empty()) {
    plan_case = oracle::make_plan_case(rng, 4);
  }
  const SegmentWork a{.tokens = 40, .attention_pairs = 1600, .llm_tokens = 10, .window_pairs = 400};
  const SegmentWork b{.tokens = 12, .attention_pairs = 144, .llm_tokens = 3, .window_pairs = 36};
  const auto figures_with = [&](const std::vector<SegmentWork>& segments) {
    Batches batches = plan_case.request.batches;
    batches[0][0].segments[0] = segments;
    return layer_figures(plan_case.model, plan_case.profile, batches, degrees_of(plan_case), {})[0];
  };
  const auto mixed = figures_with({a, b, a, b, a});
  const auto sorted = figures_with({a, a, a, b, b});
  ASSERT_EQ(mixed.size(), sorted.size());
  for (std::size_t index = 0; index < mixed.size(); ++index) {
    EXPECT_EQ(mixed[index].work_ns, sorted[index].work_ns);
    EXPECT_EQ(mixed[index].rounding_ns, sorted[index].rounding_ns);
    EXPECT_EQ(mixed[index].chain_ns, sorted[index].chain_ns);
    EXPECT_EQ(mixed[index].least_forward_ns, sorted[index].least_forward_ns);
    EXPECT_EQ(mixed[index].unit_bytes, sorted[index].unit_bytes);
    EXPECT_EQ(mixed[index].recomputed_bytes, sorted[index].recomputed_bytes);
  }
  Profile heavy = plan_case.profile;
  for (LayerProfile& layer : heavy.layers) {
    layer.forward.per_token_ns = 0x1p53;  // 40 tokens of a segment fit, as do those of all layers
  }
  Batches batches = {{plan_case.request.batches[0][0]}};
  batches[0][0].segments[0].assign(1000, a);
  EXPECT_THROW(layer_figures(plan_case.model, heavy, batches, degrees_of(plan_case), {}),
               InvalidInput);
}

TEST(ReplicaFigures, ReduceGradientsOfSeveralReplicasAlone) {
  Rng rng(19);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
  oracle::freeze(oracle::FrozenPattern::kNone, plan_case.model);
  plan_case.profile.reduce_bytes_per_second = 1e6;
  const auto degrees = degrees_of(plan_case);
  const auto one = replica_figures(plan_case.model, plan_case.profile, degrees, 1, {});
  const auto two = replica_figures(plan_case.model, plan_case.profile, degrees, 2, {});
  EXPECT_EQ(*std::max_element(one[0][0].reduce_ns.begin(), one[0][0].reduce_ns.end()), 0);
  EXPECT_GT(two[0][0].reduce_ns[1], 0);
}

}  // namespace
}  // namespace entrain
