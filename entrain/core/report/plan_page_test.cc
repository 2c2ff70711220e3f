#include "entrain/core/report/plan_page.h"

#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

oracle::PlanCase make_case() {
  Rng rng(79);
  oracle::PlanCase result = oracle::make_plan_case(rng, 8);
  while (result.cluster.num_nodes * result.cluster.devices_per_node < 6 ||
         result.model.num_modules() != 2) {
    result = oracle::make_plan_case(rng, 8);
  }
  result.cluster.memory_bytes = 1 << 30;
  result.cluster.name = "lab";
  return result;
}

void expect_page_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
  }
}

TEST(PlanPage, DrawsEveryLaneOfTheBestPlan) {
  const oracle::PlanCase plan_case = make_case();
  const PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult result = search_plans(request);
  ASSERT_TRUE(result.fits());
  const std::string page = plan_page(result, request);
  expect_page_words(page,
                    {"a step on 'lab'",
                     "devices used",
                     "####################",
                     "certificate, over",
                     "lower bound",
                     "ratio",
                     "regret",
                     "proven: everything",
                     "excluded by bounds"});
  for (const ModulePlan& module : result.best().plan.modules) {
    for (std::size_t stage = 0; stage < module.stages.size(); ++stage) {
      expect_page_words(page,
                        {module.name + " " + std::to_string(stage) + " [" +
                         std::to_string(module.stages[stage].begin) + ", " +
                         std::to_string(module.stages[stage].end) + ")"});
    }
  }
}

TEST(PlanPage, SaysWhichLayersAreRecomputedAndWhatThatTakes) {
  const oracle::PlanCase plan_case = make_case();
  PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult never = search_plans(request);
  EXPECT_EQ(plan_page(never, request).find("recomputed in backward"), std::string::npos);
  request.recompute = RecomputeRule::kFull;
  const PlanSearchResult result = search_plans(request);
  ASSERT_TRUE(result.fits());
  const ModulePlan& llm = result.best().plan.modules.back();
  expect_page_words(plan_page(result, request),
                    {"llm 0 [0, " + std::to_string(llm.stages[0].end) + ") " +
                         std::to_string(llm.stages[0].end) + " recomputed",
                     "recomputed in backward: ",
                     std::to_string(llm.stages.back().end) + " of " +
                         std::to_string(llm.stages.back().end) + " layers of llm; at most on lane ",
                     " % of its work"});
}

TEST(PlanPage, SaysThatTheBudgetEndedTheSearch) {
  const oracle::PlanCase plan_case = make_case();
  PlanSearchRequest request = plan_case.request_of();
  request.most_simulations = 1;
  const PlanSearchResult result = search_plans(request);
  ASSERT_FALSE(result.complete);
  expect_page_words(plan_page(result, request), {"not proven: the budget of", "--simulations"});
}

TEST(PlanPage, NamesWhatTheBoundIsOf) {
  const oracle::PlanCase plan_case = make_case();
  PlanSearchRequest request = plan_case.request_of();
  request.schedule = "1f1b";
  request.space.shared_lanes = SharedLanes::kNever;
  expect_page_words(plan_page(search_plans(request), request),
                    {"1 stage of a module on a lane", "with whole backwards"});
  request.space.shared_lanes = SharedLanes::kOnly;
  request.schedule = "entrain";
  expect_page_words(plan_page(search_plans(request), request),
                    {"with lanes that all modules share", "whole or split backwards"});
}

TEST(Ranked, OrdersStoppedAndSetAsidePlansByTheirTime) {
  PlanSearchResult result;
  const auto add = [](std::vector<PlanCandidate>& to,
                      CandidateState state,
                      std::vector<std::int64_t> steps,
                      std::int64_t mean_ns) {
    PlanCandidate plan;
    plan.state = state;
    plan.steps = std::move(steps);
    plan.mean_ns = mean_ns;
    to.push_back(plan);
  };
  add(result.plans, CandidateState::kSimulated, {100, 120}, 110);
  add(result.plans, CandidateState::kSimulated, {200, 240}, 220);
  add(result.stopped, CandidateState::kStopped, {130}, 165);
  add(result.set_aside, CandidateState::kSetAside, {103}, 90);
  add(result.set_aside, CandidateState::kSetAside, {104}, 90);
  result.set_aside.back().gave_up = true;
  std::vector<std::string> lines;
  for (const RunnerUp& other : ranked(result)) {
    lines.push_back(std::to_string(std::llround(100 * other.ratio)) + " " + how_far(other, result));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"103 on 1 of 2 batches, then set aside: not proven",
                                      "104 or more on 1 of 2 batches, given up: not proven",
                                      "150 at least, stopped after 1 of 2 batches",
                                      "200 on all 2 batches"}));
}

TEST(PlanPage, SaysWhyNothingFits) {
  oracle::PlanCase plan_case = make_case();
  plan_case.request.limits.chunks = false;
  plan_case.cluster.memory_bytes = 1;
  const PlanSearchRequest request = plan_case.request_of();
  expect_page_words(plan_page(search_plans(request), request), {"no plan fits 'lab'", "short"});
}

TEST(NeighboursPage, ReportsWhatEachChangeCosts) {
  const oracle::PlanCase plan_case = make_case();
  const PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult result = search_plans(request);
  const std::vector<PlanNeighbour> neighbours = judge_neighbours(request, result.best().config);
  ASSERT_FALSE(neighbours.empty());
  const std::string page = neighbours_page(neighbours, result.best(), request);
  for (const PlanNeighbour& neighbour : neighbours) {
    expect_page_words(page, {neighbour.change});
  }
  expect_page_words(page, {"why not the neighbour"});
}

TEST(RegretPage, StatesGainAndBound) {
  DynamicRegret regret;
  regret.batches = 100;
  regret.static_ns = 2'000'000;
  regret.dynamic_ns = 1'900'000;
  regret.bound_ns = 1'600'000;
  expect_page_words(regret_page(regret), {"100 further batches", "5.26 %", "25.00 % at most"});
}

TEST(LanesPage, ListsLanes) {
  Plan plan;
  plan.replicas = 2;
  plan.modules = {{.name = "llm", .tensor_parallel = 4, .context_parallel = 2, .stages = {{0, 7}}}};
  plan.lanes = default_lanes(plan.modules);
  expect_page_words(lanes_page(plan), {"2 replicas", "llm 0 [0, 7)  TP 4 CP 2"});
}

}  // namespace
}  // namespace entrain
