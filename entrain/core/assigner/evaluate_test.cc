// tests/property/assignment_test.cc compares with the simulation of all replicas.
#include "entrain/core/assigner/evaluate.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(StepEvaluator, TimesOneReplica) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1);
  hand.plan.replicas = 3;
  hand.plan.schedule = "1f1b";
  hand.costs.modules[0].stages[0].reduce = nanoseconds{5};
  hand.costs.modules[1].stages[0].reduce = nanoseconds{100};
  hand.costs.modules[1].stages[0].optimizer = nanoseconds{7};
  StepEvaluator evaluator(hand.plan, hand.costs);
  const ReplicaTimes times =
      evaluator.evaluate(oracle::placement_of(hand.assignment, hand.costs), 0);
  EXPECT_TRUE(times.done);
  EXPECT_EQ(times.total_ns, 140);
  EXPECT_GE(times.peak_bytes, 100);
  EXPECT_EQ(evaluator.step_ns({times, times, times}), 147);
  EXPECT_EQ(evaluator.evaluations(), 1);
}

TEST(StepEvaluator, MeasuresMemoryUnderALimit) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 3);
  hand.plan.limits.bytes_per_lane = 150;
  StepEvaluator evaluator(hand.plan, hand.costs);
  const ReplicaTimes times =
      evaluator.evaluate(oracle::placement_of(hand.assignment, hand.costs), 0);
  EXPECT_GE(times.peak_bytes, 200);  // two slots in flight on the encoder's lane
  EXPECT_FALSE(times.fits());
  EXPECT_GT(times.score(), static_cast<double>(times.total_ns));
}

// Plain arrays and the whole way through groups, program and simulator agree, whatever the
// placement: deferral, segments apart, tiny groups, frozen modules, several encoders.
TEST(StepEvaluator, AgreesWithTheSimulatorOnEverySchedule) {
  constexpr std::uint64_t kSeed = 20261121;
  for (int i = 0; i < 1500; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = i % 3 == 0;
    options.alike = i % 4 == 0;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    const Placement placement = oracle::placement_of(of.assignment, of.costs);
    for (const std::string& schedule : oracle::schedules_for(of.plan)) {
      of.plan.schedule = schedule;
      const Program program = build_program(of.plan, of.assignment, of.costs, schedule);
      const Timeline timeline = simulate(program, of.costs);
      StepEvaluator evaluator(of.plan, of.costs);
      std::vector<ReplicaTimes> times;
      std::int64_t peak = 0;
      std::int64_t expected_peak = 0;
      for (int replica = 0; replica < of.plan.replicas; ++replica) {
        times.push_back(evaluator.choose_rule(placement, replica));
        ASSERT_TRUE(times.back().done);
        peak = std::max(peak, times.back().peak_bytes);
        for (const LaneUsage& usage : timeline.lanes[static_cast<std::size_t>(replica)]) {
          expected_peak = std::max(expected_peak, usage.peak_bytes);
        }
      }
      ASSERT_EQ(evaluator.step_ns(times), timeline.makespan.count())
          << schedule << ", seed " << kSeed << ", case " << i << "\n"
          << describe(of);
      ASSERT_EQ(peak, expected_peak) << schedule << ", case " << i;
    }
  }
}

}  // namespace
}  // namespace entrain
