#include "entrain/core/assigner/balance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

double cv_of(const std::vector<double>& loads) {
  double mean = 0;
  for (const double load : loads) {
    mean += load / static_cast<double>(loads.size());
  }
  double squares = 0;
  for (const double load : loads) {
    squares += (load - mean) * (load - mean);
  }
  return mean > 0 ? std::sqrt(squares / static_cast<double>(loads.size())) / mean : 0;
}

// The least of all placements of units in slots.
double least_cv(const std::vector<std::int64_t>& units, int slots) {
  double least = 1e9;
  std::vector<int> slot_of(units.size(), 0);
  for (bool more = true; more;) {
    std::vector<double> loads(static_cast<std::size_t>(slots), 0.0);
    for (std::size_t i = 0; i < units.size(); ++i) {
      loads[static_cast<std::size_t>(slot_of[i])] += static_cast<double>(units[i]);
    }
    least = std::min(least, cv_of(loads));
    more = false;
    for (int& slot : slot_of) {
      slot = (slot + 1) % slots;
      if (slot != 0) {
        more = true;
        break;
      }
    }
  }
  return least;
}

TEST(FloorCv, IsNoMoreThanTheBestPlacement) {
  constexpr std::uint64_t kSeed = 7;
  Rng rng(kSeed);
  int tight = 0;
  for (int i = 0; i < 1000; ++i) {
    const int slots = 1 + static_cast<int>(rng.below(4));
    std::vector<std::int64_t> units;
    for (std::uint64_t n = rng.below(6); n > 0; --n) {
      units.push_back(static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 10 : 100)));
    }
    const double floor = floor_cv(units, slots);
    const double least = least_cv(units, slots);
    ASSERT_LE(floor, least + 1e-12) << "seed " << kSeed << ", case " << i;
    tight += std::abs(floor - least) < 1e-9 ? 1 : 0;
  }
  EXPECT_GT(tight, 300);
}

TEST(FloorCv, CountsAnOversizedSample) {
  // One unit of 10 and ten of 1 in two slots: 10 and 10 is possible.
  EXPECT_DOUBLE_EQ(floor_cv({10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2), 0.0);
  // Twice that: 20 and 10 at best, mean 15.
  EXPECT_DOUBLE_EQ(floor_cv({20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2), 5.0 / 15.0);
  // Two units in four slots leave two empty.
  EXPECT_DOUBLE_EQ(floor_cv({3, 3}, 4), 1.0);
}

TEST(FloorCv, IsZeroWithoutWork) {
  EXPECT_EQ(floor_cv({}, 3), 0.0);
  EXPECT_EQ(floor_cv({0, 0}, 3), 0.0);
}

// Replicas of two slots and of one: pooled, the loads 9, 0 and 9 would have a CV of 0.71.
TEST(ModuleBalance, CountsEmptySlotsAndAllStagesOfEachReplica) {
  StepCosts costs;
  costs.num_samples = 3;
  costs.modules.resize(1);
  costs.modules[0].first_unit = {0, 1, 2, 3};
  for (const int share : {1, 2}) {
    StageCosts stage;
    for (const int size : {1, 2, 3}) {
      UnitCost unit;
      unit.time.forward = std::chrono::seconds{share * size};
      unit.time.backward_input = std::chrono::seconds{100};
      stage.units.own().push_back(unit);
    }
    costs.modules[0].stages.push_back(stage);
  }
  StepAssignment assignment;
  assignment.replicas.push_back({2, {{{{.sample = 0}, {.sample = 1}}, {}}}});
  assignment.replicas.push_back({1, {{{{.sample = 2}}}}});
  const ModuleBalance balance = module_balance(assignment, costs, 0);
  ASSERT_EQ(balance.replicas.size(), 2U);
  const ReplicaBalance& two = balance.replicas[0];  // loads 9 and 0, of units 3 and 6
  EXPECT_EQ(two.num_slots, 2);
  EXPECT_DOUBLE_EQ(two.mean_s, 4.5);
  EXPECT_DOUBLE_EQ(two.std_s, 4.5);
  EXPECT_DOUBLE_EQ(two.cv, 1.0);
  EXPECT_DOUBLE_EQ(two.max_over_mean, 2.0);
  EXPECT_DOUBLE_EQ(two.floor_cv, 1.0 / 3.0) << "6 and 3 at best";
  const ReplicaBalance& one = balance.replicas[1];
  EXPECT_EQ(one.num_slots, 1);
  EXPECT_DOUBLE_EQ(one.mean_s, 9.0);
  EXPECT_EQ(one.cv, 0.0);
  EXPECT_DOUBLE_EQ(one.max_over_mean, 1.0);
  EXPECT_DOUBLE_EQ(balance.mean_s, 6.75);
  EXPECT_DOUBLE_EQ(balance.std_s, 2.25);
  EXPECT_DOUBLE_EQ(balance.cv, 0.5);
  EXPECT_DOUBLE_EQ(balance.max_over_mean, 1.5);
  EXPECT_DOUBLE_EQ(balance.floor_cv, 1.0 / 6.0);
}

TEST(ModuleBalance, LeavesReplicasWithoutWorkOutOfTheMean) {
  StepCosts costs;
  costs.num_samples = 2;
  costs.modules.resize(1);
  costs.modules[0].first_unit = {0, 1, 2};
  costs.modules[0].stages.resize(1);
  costs.modules[0].stages[0].units.own().resize(2);
  costs.modules[0].stages[0].units[0].time.forward = std::chrono::seconds{4};
  StepAssignment assignment;
  assignment.replicas.push_back({2, {{{{.sample = 0}}, {}}}});
  assignment.replicas.push_back({3, {{{}, {{.sample = 1}}, {}}}});
  const ModuleBalance balance = module_balance(assignment, costs, 0);
  EXPECT_EQ(balance.replicas[1].num_slots, 3);
  EXPECT_EQ(balance.replicas[1].cv, 0.0);
  EXPECT_DOUBLE_EQ(balance.cv, 1.0) << "of the first replica alone";
  EXPECT_DOUBLE_EQ(balance.max_over_mean, 2.0);
}

}  // namespace
}  // namespace entrain
