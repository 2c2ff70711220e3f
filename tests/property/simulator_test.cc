// Random tiny programs: the replay against an obviously slow one, on programs of the schedules,
// with weight gradients split off, and with orders shuffled until some of them deadlock.
#include "entrain/core/simulator/simulator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/random_programs.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain {
namespace {

using oracle::expect_equal;
using oracle::expect_slow_memory;
using oracle::make_random_program;
using oracle::RandomProgram;

constexpr std::uint64_t kSeed = 7101;
constexpr int kCases = 1500;

TEST(Simulator, EqualsTheSlowOneOnEveryOperation) {
  int multi_part_groups = 0;
  int split = 0;
  for (int index = 0; index < kCases; ++index) {
    const RandomProgram instance = make_random_program(kSeed, index);
    const StepCosts& costs = instance.random_case.costs;
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs);
    ASSERT_TRUE(expected.finished) << instance.text;
    const Timeline actual = simulate(instance.program, costs, {.events = true});
    expect_equal(instance, {}, expected, actual);
    expect_slow_memory(instance, actual);
    EXPECT_EQ(simulate(instance.program, costs).makespan, actual.makespan);
    for (const ReplicaProgram& replica : instance.program.replicas) {
      for (const auto& list : replica.lanes) {
        split += std::any_of(list.begin(), list.end(), [](const Operation& operation) {
          return operation.kind == OperationKind::kBackwardWeight;
        });
      }
      for (std::size_t module = 0; module + 1 < replica.groups.size(); ++module) {
        for (const auto& slot : replica.groups[module]) {
          for (const Group& group : slot) {
            multi_part_groups += group.llm_slots.size() > 1 ? 1 : 0;
          }
        }
      }
    }
    if (testing::Test::HasFailure()) {
      FAIL() << instance.text;
    }
  }
  // The draw reaches what is hard.
  EXPECT_GT(multi_part_groups, kCases / 10);
  EXPECT_GT(split, kCases / 10);
}

TEST(Simulator, CountsWhatBackwardsRecompute) {
  int higher = 0;
  for (int index = 0; index < kCases; ++index) {
    RandomProgram instance =
        make_random_program(kSeed, index, {.cases = {.chunks = index % 2 == 0, .recompute = true}});
    const StepCosts& costs = instance.random_case.costs;
    const Timeline actual = simulate(instance.program, costs, {.events = true});
    expect_slow_memory(instance, actual);
    std::int64_t peak = 0;
    std::int64_t without = 0;
    StepCosts kept = costs;
    for (ModuleCosts& module : kept.modules) {
      for (StageCosts& stage : module.stages) {
        for (UnitCost& unit : stage.units) {
          unit.recompute = {};
        }
      }
    }
    const Timeline other = simulate(instance.program, kept);
    for (std::size_t lane = 0; lane < actual.lanes[0].size(); ++lane) {
      peak += actual.lanes[0][lane].peak_bytes;
      without += other.lanes[0][lane].peak_bytes;
    }
    EXPECT_GE(peak, without);
    higher += peak > without ? 1 : 0;
    if (testing::Test::HasFailure()) {
      FAIL() << instance.text;
    }
  }
  EXPECT_GT(higher, kCases / 4);
}

TEST(Simulator, RefusesExactlyWhatCannotFinish) {
  int stuck = 0;
  for (int index = 0; index < kCases; ++index) {
    const RandomProgram instance = make_random_program(kSeed, index, {.shuffled = true});
    const StepCosts& costs = instance.random_case.costs;
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs);
    try {
      const Timeline actual = simulate(instance.program, costs);
      EXPECT_TRUE(expected.finished) << instance.text;
      EXPECT_EQ(actual.makespan, expected.makespan) << instance.text;
    } catch (const InvalidInput& error) {
      EXPECT_FALSE(expected.finished) << error.what() << "\n" << instance.text;
      ++stuck;
    }
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(stuck, kCases / 20);
  EXPECT_LT(stuck, kCases - kCases / 20);
}

}  // namespace
}  // namespace entrain
