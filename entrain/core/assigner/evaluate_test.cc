// tests/property/assignment_test.cc compares with the simulation of all replicas.
#include "entrain/core/assigner/evaluate.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/assigner/moves.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

constexpr std::int64_t kAmple = std::int64_t{1} << 50;  // bytes that no lane reaches

TEST(StepEvaluator, TimesOneReplica) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1);
  hand.plan.replicas = 3;
  hand.plan.schedule = "1f1b";
  hand.plan.limits.bytes_per_lane = kAmple;
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

// Two forwards and two backwards a slot are 4 operations: 1200 in 300 slots.
TEST(StepEvaluator, CountsALargeReplicaAsSeveralEvaluations) {
  for (const auto& [slots, expected] : {std::pair{100, 1}, {300, 1}, {1200, 6}}) {
    oracle::HandCase hand = oracle::make_plain_case({1, 1}, slots);
    hand.plan.schedule = "1f1b";
    StepEvaluator evaluator(hand.plan, hand.costs);
    evaluator.evaluate(oracle::placement_of(hand.assignment, hand.costs), 0);
    EXPECT_EQ(evaluator.evaluations(), expected) << slots << " slots";
  }
  oracle::HandCase within = oracle::make_plain_case({1, 1}, 1200);
  within.plan.schedule = "1f1b";
  within.plan.limits.bytes_per_lane = 1'000'000'000;
  StepEvaluator evaluator(within.plan, within.costs);
  evaluator.evaluate(oracle::placement_of(within.assignment, within.costs), 0);
  EXPECT_EQ(evaluator.evaluations(), 4) << "within byte limits";
}

// 4800 operations and 2400 messages, once simulated, then replayed: 4800 + 3 × 7200 / 20 in all.
TEST(StepEvaluator, CountsReplaysAsATwentieth) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1200);
  hand.plan.schedule = "1f1b";
  StepEvaluator evaluator(hand.plan, hand.costs);
  for (int i = 0; i < 4; ++i) {
    evaluator.evaluate(oracle::placement_of(hand.assignment, hand.costs), 0);
  }
  EXPECT_EQ(evaluator.simulations(), 1);
  EXPECT_EQ(evaluator.usual_simulations(), 7);
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
    const bool limited = i % 2 == 0;
    of.plan.limits.bytes_per_lane = limited ? kAmple : 0;
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
      ASSERT_EQ(peak, limited ? expected_peak : 0) << schedule << ", case " << i;
    }
  }
}

// What ends in time is what is found without a deadline; what does not changes no choice.
TEST(StepEvaluator, ChoosesNoRuleThatEndsTooLate) {
  for (int i = 0; i < 200; ++i) {
    Rng rng(20261126, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng, {});
    of.plan.schedule = "entrain";
    const Placement placement = oracle::placement_of(of.assignment, of.costs);
    StepEvaluator evaluator(of.plan, of.costs);
    StepEvaluator other(of.plan, of.costs);
    const ReplicaTimes wanted = other.choose_rule(placement, 0);
    const auto choose = [&](std::int64_t stop_after) {
      return evaluator.choose_rule(placement, 0, RuleSet::kAll, stop_after);
    };
    const std::int64_t total = wanted.total_ns;
    const ReplicaTimes in_time = choose(total);
    ASSERT_TRUE(in_time.done) << "case " << i;
    EXPECT_EQ(in_time.total_ns, total) << "case " << i;
    EXPECT_EQ(in_time.rule, wanted.rule) << "case " << i;
    EXPECT_EQ(evaluator.num_near_rules(), other.num_near_rules()) << "case " << i;
    StepEvaluator third(of.plan, of.costs);
    const int all = third.num_near_rules();
    const ReplicaTimes fastest = third.choose_rule(placement, 0, RuleSet::kFastest);
    EXPECT_EQ(fastest.total_ns, total) << "case " << i;
    EXPECT_EQ(fastest.rule, wanted.rule) << "case " << i;
    EXPECT_EQ(third.num_near_rules(), all) << "kFastest leaves what is near";
    const ReplicaTimes none = choose(total / 2);
    EXPECT_FALSE(none.done) << "case " << i;
    EXPECT_EQ(evaluator.evaluate(placement, 0).rule, wanted.rule) << "case " << i;
    EXPECT_EQ(evaluator.num_near_rules(), other.num_near_rules()) << "case " << i;
  }
}

// Along a walk by moves: where orders are fixed, what is replayed takes what a simulation says, and
// a path that stays the longest grows as foretold.
TEST(StepEvaluator, ReplaysOrdersAndKeepsPaths) {
  constexpr std::uint64_t kSeed = 20261125;
  int replays = 0;
  int foretold = 0;
  for (int i = 0; i < 400; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng, {.chunks = i % 3 == 0});
    of.plan.limits.bytes_per_lane = i % 2 == 0 ? std::int64_t{1} << 60 : 0;  // for the bytes
    const bool one_stage = std::all_of(of.plan.lanes.begin(),
                                       of.plan.lanes.end(),
                                       [](const auto& lane) { return lane.size() == 1; });
    AssignRequest request;
    request.plan = &of.plan;
    request.costs = &of.costs;
    const BatchLoads loads = batch_loads(of.plan, of.costs);
    for (const std::string& schedule : oracle::schedules_for(of.plan)) {
      of.plan.schedule = schedule;
      const bool fixed =
          one_stage && (schedule == "1f1b" || schedule == "gpipe" || schedule.starts_with("zb-"));
      Placement placement = oracle::placement_of(of.assignment, of.costs);
      const std::vector<int> replicas = oracle::replicas_of(of.plan);
      Placement kept = placement;
      PlacementEdit edit(placement, kept, replicas);
      Mover mover(request, loads, replicas, rng, edit);
      StepEvaluator evaluator(of.plan, of.costs);
      std::int64_t before = 0;
      for (int move = 0; move < 12; ++move) {
        const std::string what =
            schedule + ", case " + std::to_string(i) + "\n" + oracle::describe(of);
        const std::int64_t growth = evaluator.path_growth(edit, 0);
        edit.keep();
        const int simulations = evaluator.simulations();
        const ReplicaTimes times = evaluator.find_chain(placement, 0);
        const ReplicaTimes simulated = StepEvaluator(of.plan, of.costs).evaluate(placement, 0);
        const bool replayed = evaluator.simulations() == simulations;
        ASSERT_TRUE(fixed || !replayed) << what;
        ASSERT_EQ(times.total_ns, simulated.total_ns) << what;
        ASSERT_TRUE(!evaluator.has_limits() || times.peak_bytes == simulated.peak_bytes) << what;
        foretold += replayed && growth != 0 && times.total_ns == before + growth ? 1 : 0;
        before = times.total_ns;
        replays += replayed ? 1 : 0;
        if (fixed && times.total_ns > 1) {
          ASSERT_FALSE(evaluator.evaluate(placement, 0, times.total_ns - 1).done) << what;
        }
        mover.move(0);
      }
    }
  }
  EXPECT_GT(replays, 3000);
  EXPECT_GT(foretold, 300);
}

}  // namespace
}  // namespace entrain
