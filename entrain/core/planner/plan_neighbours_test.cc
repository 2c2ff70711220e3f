#include "entrain/core/planner/plan_neighbours.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

TEST(JudgeNeighbours, FindsNoneFasterThanTheBestOfACompleteSearch) {
  constexpr std::uint64_t kSeed = 61;
  Rng rng(kSeed);
  int neighbours = 0;
  int no_fit = 0;
  for (int i = 0; i < 200; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult result = search_plans(request);
    if (!result.fits()) {
      continue;
    }
    const PlanConfig& best = result.best().config;
    for (const PlanNeighbour& neighbour : judge_neighbours(request, best)) {
      ++neighbours;
      EXPECT_FALSE(neighbour.config == best);
      EXPECT_FALSE(neighbour.change.empty());
      if (!neighbour.fits()) {
        ++no_fit;
        continue;
      }
      EXPECT_GE(neighbour.candidate->mean_ns, result.best().mean_ns)
          << "seed " << kSeed << " case " << i << ": " << neighbour.change;
    }
  }
  EXPECT_GT(neighbours, 50);
  EXPECT_GT(no_fit, 0);
}

TEST(JudgeNeighbours, MovesLanesBetweenModules) {
  Rng rng(67);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 1);
  while (plan_case.model.num_modules() != 2) {
    plan_case = oracle::make_plan_case(rng, 1);
  }
  plan_case.cluster = {};
  plan_case.cluster.devices_per_node = 4;
  std::erase_if(plan_case.profile.layers, [](const LayerProfile& layer) {
    return layer.tensor_parallel * layer.context_parallel > 1;
  });
  PlanConfig config;
  config.modules = {{{1, 1}, 2}, {{1, 1}, 2}};
  const PlanSearchRequest request = plan_case.request_of();
  config.num_slots = (static_cast<int>(request.batches[0].size()) + 1) / 2;
  PlanSearchRequest pairs = request;
  pairs.space.microbatches = {2};
  std::vector<std::string> changes;
  for (const PlanNeighbour& neighbour : judge_neighbours(pairs, config)) {
    changes.push_back(neighbour.change);
  }
  for (const char* change : {"1 device of vision to llm", "1 device of llm to vision"}) {
    EXPECT_EQ(std::count(changes.begin(), changes.end(), change), 1) << change;
  }
}

}  // namespace
}  // namespace entrain
