#include "entrain/core/planner/plan_neighbours.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

TEST(JudgeNeighbours, FindsNoneFasterThanTheBestOfACompleteSearch) {
  constexpr std::uint64_t kSeed = 61;
  Rng rng(kSeed);
  int neighbours = 0;
  int no_fit = 0;
  for (int i = 0; i < oracle::case_count(200); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult result = search_plans(request);
    if (!result.fits()) {
      continue;
    }
    const PlanShape& best = result.best().config;
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
  EXPECT_GT(neighbours, oracle::met_count(50));
  EXPECT_GT(no_fit, 0);
}

// A cluster of four devices, one encoder, layers enough for four stages of each module.
oracle::PlanCase make_case_of_four_devices() {
  Rng rng(67);
  oracle::PlanCase result = oracle::make_plan_case(rng, 1);
  while (result.model.num_modules() != 2) {
    result = oracle::make_plan_case(rng, 1);
  }
  result.cluster = {};
  result.cluster.devices_per_node = 4;
  return result;
}

// Makes the profile that of one device give costs at each of these degrees.
void set_degrees(const std::vector<Degrees>& degrees, Profile& profile) {
  std::erase_if(profile.layers, [](const LayerProfile& layer) {
    return layer.tensor_parallel * layer.context_parallel > 1;
  });
  const std::vector<LayerProfile> alone = std::exchange(profile.layers, {});
  for (const Degrees& of : degrees) {
    for (LayerProfile layer : alone) {
      layer.tensor_parallel = of.tensor_parallel;
      layer.context_parallel = of.context_parallel;
      profile.layers.push_back(layer);
    }
  }
}

std::vector<PlanNeighbour> neighbours_of(const oracle::PlanCase& plan_case, PlanShape config) {
  PlanSearchRequest request = plan_case.request_of();
  config.num_slots = (static_cast<int>(request.batches[0].size()) + 1) / 2;
  request.space.microbatches = {2};
  return judge_neighbours(request, config);
}

TEST(JudgeNeighbours, MovesLanesBetweenModules) {
  oracle::PlanCase plan_case = make_case_of_four_devices();
  set_degrees({{1, 1}}, plan_case.profile);
  PlanShape config;
  config.modules = {{{1, 1}, 2}, {{1, 1}, 2}};
  std::vector<std::string> changes;
  for (const PlanNeighbour& neighbour : neighbours_of(plan_case, config)) {
    changes.push_back(neighbour.change);
  }
  for (const char* change : {"1 device of vision to llm", "1 device of llm to vision"}) {
    EXPECT_EQ(std::count(changes.begin(), changes.end(), change), 1) << change;
  }
}

TEST(JudgeNeighbours, PutsModulesOnTheSameLanesAndApart) {
  oracle::PlanCase plan_case = make_case_of_four_devices();
  set_degrees({{1, 1}}, plan_case.profile);
  plan_case.request.space.shared_lanes = SharedLanes::kToo;
  PlanShape apart;
  apart.modules = {{{1, 1}, 2}, {{1, 1}, 2}};
  PlanShape shared{1, 1, ModuleLayout::kColocated, {{{1, 1}, 4}, {{1, 1}, 4}}};
  const auto neighbours = neighbours_of(plan_case, apart);
  EXPECT_EQ(std::count_if(neighbours.begin(),
                          neighbours.end(),
                          [&](const PlanNeighbour& of) {
                            return of.change == "all modules share lanes" &&
                                   of.config.modules == shared.modules;
                          }),
            1);
  const auto back = neighbours_of(plan_case, shared);
  EXPECT_EQ(std::count_if(back.begin(),
                          back.end(),
                          [&](const PlanNeighbour& of) {
                            return of.change == "lanes of each module's own" &&
                                   of.config.modules == apart.modules;
                          }),
            1);
}

// Degrees of the LLM on four devices beside four of the encoder that change in one of both, or
// keep their product: from one device a lane to two or four, but to no two by two; from TP 2 to
// CP 2 as well.
TEST(JudgeNeighbours, ChangesOneDegreeOrExchangesBoth) {
  oracle::PlanCase plan_case = make_case_of_four_devices();
  plan_case.cluster.num_nodes = 2;
  const std::vector<Degrees> all = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 4}};
  set_degrees(all, plan_case.profile);
  for (const Degrees& own : all) {
    PlanShape config;
    config.modules = {{{1, 1}, 4}, {own, 4 / own.devices()}};
    std::vector<Degrees> found;
    for (const PlanNeighbour& neighbour : neighbours_of(plan_case, config)) {
      const ModuleShape& llm = neighbour.config.modules[1];
      if (neighbour.config.replicas == 1 && neighbour.config.modules[0] == config.modules[0] &&
          neighbour.config.layout == config.layout) {
        EXPECT_EQ(llm.degrees.devices() * llm.stages, 4);
        found.push_back(llm.degrees);
      }
    }
    std::vector<Degrees> expected;
    for (const Degrees& other : all) {
      const int changed = (other.tensor_parallel != own.tensor_parallel ? 1 : 0) +
                          (other.context_parallel != own.context_parallel ? 1 : 0);
      if (changed == 1 || (changed == 2 && other.devices() == own.devices())) {
        expected.push_back(other);
      }
    }
    EXPECT_TRUE(std::is_permutation(found.begin(), found.end(), expected.begin(), expected.end()))
        << "TP " << own.tensor_parallel << ", CP " << own.context_parallel << ": " << found.size()
        << " of " << expected.size();
  }
}

}  // namespace
}  // namespace entrain
