#include "entrain/core/baselines/loads.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(BatchLoads, StandForEachModulesHeaviestLane) {
  oracle::HandCase hand = oracle::make_plain_case({2, 2}, 3);
  for (UnitCost& unit : hand.costs.modules[0].stages[1].units) {
    unit.time.forward = nanoseconds{100};
  }
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.lanes, (std::vector<int>{1, 2}));
  EXPECT_EQ(loads.unit[0][0][0], 120.0);  // 100 forward, 20 backward
  EXPECT_EQ(loads.llm[0][1], 30.0);
  EXPECT_EQ(loads.sample[0], (Load{120.0, 30.0, 0.0, 0.0}));
  EXPECT_EQ(loads.total, (Load{360.0, 90.0, 0.0, 0.0}));
}

TEST(BatchLoads, SumModulesThatShareALane) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 2);
  hand.plan.lanes = {{{0, 0}, {1, 0}}};
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.lanes, (std::vector<int>{0}));
  EXPECT_EQ(loads.sample[1], (Load{60.0, 0.0, 0.0, 0.0}));
}

TEST(BatchLoads, AreTheSameWhetherRunsAreKnown) {
  const Plan plan = oracle::paper_plan();
  StepCosts costs =
      step_costs(oracle::paper_model(), plan, oracle::paper_profile(), oracle::batch_of_runs());
  const BatchLoads with_runs = batch_loads(plan, costs);
  ASSERT_EQ(costs.modules[0].runs.size(), 5U);
  costs.modules[0].runs.clear();
  const BatchLoads loads = batch_loads(plan, costs);
  EXPECT_EQ(with_runs.unit, loads.unit);
  EXPECT_EQ(with_runs.sample, loads.sample);
  EXPECT_EQ(with_runs.lanes, loads.lanes);
}

TEST(BatchLoads, OrderSamplesByTheirLargestShare) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 3);
  hand.costs.modules[0].stages[0].units[1].time.forward = nanoseconds{500};
  hand.costs.modules[1].stages[0].units[2].time.forward = nanoseconds{5000};
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.descending, (std::vector<int>{2, 1, 0}));
}

TEST(BatchLoads, KnowTextOnlySamples) {
  const oracle::HandCase hand = oracle::make_hand_case({1, 1}, 1, {{0, {{0}}}, {0, {{}}}});
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  EXPECT_EQ(loads.text_only, (std::vector<char>{0, 1}));
}

// The rule written down plainly: every dimension of every bin.
int plain_bin(const std::vector<Load>& bins,
              const std::vector<int>& counts,
              const Load& load,
              const Load& scale) {
  std::vector<std::tuple<double, int, int>> order;
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    double largest = 0;
    for (std::size_t d = 0; d < load.size(); ++d) {
      largest = scale[d] > 0 ? std::max(largest, (bins[bin][d] + load[d]) / scale[d]) : largest;
    }
    order.emplace_back(largest, counts[bin], static_cast<int>(bin));
  }
  return std::get<2>(*std::min_element(order.begin(), order.end()));
}

// Small numbers, so that many bins are equal; every fourth case of more bins than are left out
// together.
TEST(LoadBins, TakeTheBinOfThePlainRule) {
  Rng rng(71);
  for (int i = 0; i < 500; ++i) {
    const auto number = [&](std::uint64_t below) { return static_cast<double>(rng.below(below)); };
    const Load scale = {number(4), number(4), 1.0 + number(3), i % 2 == 0 ? 0 : number(3)};
    std::vector<Load> bins(1 + rng.below(i % 4 == 0 ? 150 : 9));
    std::vector<int> counts(bins.size(), 0);
    LoadBins tested(static_cast<int>(bins.size()), scale);
    for (int load = 0; load < (i % 4 == 0 ? 300 : 40); ++load) {
      const Load added = {number(4), number(6), number(3), number(9)};
      const int bin = plain_bin(bins, counts, added, scale);
      ASSERT_EQ(tested.add(added), bin) << "case " << i << ", load " << load;
      for (std::size_t d = 0; d < added.size(); ++d) {
        bins[static_cast<std::size_t>(bin)][d] += added[d];
      }
      ++counts[static_cast<std::size_t>(bin)];
    }
  }
}

}  // namespace
}  // namespace entrain
